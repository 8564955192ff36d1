"""Text and messages without a server: cutting, rendering, Unicode, digests."""
