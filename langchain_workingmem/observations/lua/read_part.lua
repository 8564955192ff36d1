-- Reads what the log of a user shows of one thread.
-- ARGV  thread as a tag, user as a tag, version, next number, what is hidden and the digest of the title, as the caller knows them
-- Reply what read_part returns
return read_part(ARGV[1], KEYS[1], KEYS[12], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6])
