-- Lists the messages of a thread that values cite.
-- ARGV  thread
-- Reply id, sequence number, ...
local reply = {}
each_citing(function(_, claim)
  for _, source in ipairs(claim[1]) do
    if source[1] == ARGV[1] then
      reply[#reply + 1] = source[2]
      reply[#reply + 1] = source[3]
    end
  end
end)
return reply
