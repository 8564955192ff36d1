-- Tells whether a log is being observed; writes nothing.
-- KEYS  of the thread (ThreadKeys.all), or of the user: tombstone, what waits, index
-- Reply ms after which the lease of a process ends, 0: nobody observes; ms of the pause after failures of the observer
local leased, pause = unpack(redis.call('HMGET', lease_key(), 'leased_until', 'pause_until'))
local function left(at) return math.max(0, math.ceil((tonumber(at or 0) - now()) / 1000)) end
return {left(leased), left(pause)}
