-- Notes that a keeper reads a thread, before it reads a message.
-- ARGV  user or '', u or t: whose working memory it keeps
-- Reply 1, 0 if there is no thread; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
mark_thread(ARGV[2])
return 1
