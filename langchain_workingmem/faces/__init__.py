"""Memory at the interfaces of LangChain and LangGraph; users import these classes from the package itself."""
