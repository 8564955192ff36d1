"""The memory as a server of the Model Context Protocol (MCP): for desktop clients, coding agents and programs.

Whose memory it is, the server decides: no argument of a tool names a user.
"""

try:
    import mcp  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    msg = f"an MCP server needs its extra: pip install 'langchain-workingmem[mcp]' ({error})"
    raise ImportError(msg) from error

from langchain_workingmem.mcp.protocol import server
from langchain_workingmem.mcp.transports import application, at_path, protocol_streams, run_stdio

__all__ = ["application", "at_path", "protocol_streams", "run_stdio", "server"]
