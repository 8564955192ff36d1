"""The studio: one's memory on web pages of this machine, as `workingmem studio` serves them; needs the extra `studio`.

`app` holds the routes and who may enter, `site` what all pages share; the other modules make the pages.
They are made on the server, from `templates`, without scripts, each in a thread; nothing that was stored becomes markup.
"""

try:
    import jinja2  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    msg = f"the studio needs its extra: pip install 'langchain-workingmem[studio]' ({error})"
    raise ImportError(msg) from error

from langchain_workingmem.studio.app import application
from langchain_workingmem.studio.site import Studio

__all__ = ["Studio", "application"]
