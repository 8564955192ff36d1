"""Tests of working memory that keeps itself."""
