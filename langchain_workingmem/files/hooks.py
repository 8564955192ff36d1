"""What files offer to the rooms below (`_redis.state.wing`)."""

from langchain_workingmem.files import archive

exported = archive.export
merged_into = archive.merge
record = archive.FileRecord
