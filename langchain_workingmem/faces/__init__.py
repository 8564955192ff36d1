"""What LangChain and LangGraph call: tools, nodes, retriever, chat history, and what the middleware does."""
