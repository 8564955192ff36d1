"""The documented path of `SemanticRecallRetriever`, which lies in `faces`."""

from langchain_workingmem.faces.retriever import SemanticRecallRetriever

__all__ = ["SemanticRecallRetriever"]
