"""Memory for LangChain and LangGraph agents on Redis."""
