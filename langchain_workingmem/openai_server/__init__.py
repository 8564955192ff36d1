"""An agent with memory behind the chat completions protocol of OpenAI: for Open WebUI, LibreChat, SDKs and other clients.

Whose memory it is, the server decides: no field of a body names a user.
"""

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    msg = f"the server needs its extra: pip install 'langchain-workingmem[server]' ({error})"
    raise ImportError(msg) from error

from langchain_workingmem.openai_server.app import application

__all__ = ["application"]
