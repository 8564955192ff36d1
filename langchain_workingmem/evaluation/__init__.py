"""Measures recall on conversations with questions: reads them, asks variants of options, compares what comes back.

`workingmem eval` and benchmarks/recall_quality.py are made of it. docs/how-to/measure.md explains formats and figures.
"""

from langchain_workingmem.evaluation.datasets import DataSet, Question, Resource
from langchain_workingmem.evaluation.figures import SAMPLES, SHARE, TOKENS, Array, Measured, between, compare, short
from langchain_workingmem.evaluation.formats import ADVERSARIAL, questions_of, read
from langchain_workingmem.evaluation.measuring import Bench, evaluate
from langchain_workingmem.evaluation.variants import DEFAULTS, TOGETHER, Variant, variant_of

__all__ = [
    "ADVERSARIAL",
    "DEFAULTS",
    "SAMPLES",
    "SHARE",
    "TOGETHER",
    "TOKENS",
    "Array",
    "Bench",
    "DataSet",
    "Measured",
    "Question",
    "Resource",
    "Variant",
    "between",
    "compare",
    "evaluate",
    "questions_of",
    "read",
    "short",
    "variant_of",
]
