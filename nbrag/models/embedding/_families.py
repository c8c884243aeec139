"""What well-known families of embedders need where their own files don't say it.

Many models were published before their files could name prefixes, and an ONNX export often leaves
the pooling out; then only the model card says it. Looked up by name, and only for what the files
leave open. Sources are the cards and papers of each family: E5 (Wang et al. 2022, 2024), BGE (Xiao
et al. 2023), GTE (Li et al. 2023), Nomic Embed (Nussbaum et al. 2024), Arctic-Embed (Merrick et
al. 2024), Sentence-BERT (Reimers and Gurevych 2019).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Family", "family_of"]

_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_BGE_QUERY_ZH = "为这个句子生成表示以用于检索相关文章："  # noqa: RUF001 - the model's own words
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"


class Family(NamedTuple):
    """How the models of a family are used.

    Attributes
    ----------
    pooling
        How token vectors become one.
    query_prefix, document_prefix
        Text put before a query or a document.
    """

    pooling: str
    query_prefix: str = ""
    document_prefix: str = ""


_E5 = Family("mean", "query: ", "passage: ")
_NOMIC = Family("mean", "search_query: ", "search_document: ")
_BASES = "(mini|mpnet|distil|albert|bert|roberta)"
#: The first pattern that fits the last part of the name, in lower case.
_FAMILIES = (
    (r"multilingual-e5-\w+-instruct", Family("mean", f"{_INSTRUCT}Query: ")),
    (r"(multilingual-)?e5-(small|base|large)(-unsupervised)?(-v2)?", _E5),
    (r"bge-m3", Family("cls")),
    (r"bge-(small|base|large)-zh(-v1\.5)?", Family("cls", _BGE_QUERY_ZH)),
    (r"bge-(micro|small|base|large)(-en)?(-v\d(\.5)?)?", Family("cls", _BGE_QUERY)),
    (r"mxbai-embed-\w+(-v\d)?", Family("cls", _BGE_QUERY)),
    (r"snowflake-arctic-embed-\w+-v2\.0", Family("cls", "query: ")),
    (r"snowflake-arctic-embed-\w+(-v1\.5)?", Family("cls", _BGE_QUERY)),
    (r"gte-(base|large)-en-v1\.5|gte-multilingual-base|gte-modernbert-base", Family("cls")),
    (r"gte-(tiny|small|base|large)", Family("mean")),
    (r"nomic-embed-text-v\d(\.5)?(-moe)?|modernbert-embed-\w+", _NOMIC),
    (r"qwen3-embedding-[\d.]+b", Family("last", f"{_INSTRUCT}Query:")),
    (r"jina-embeddings-v2-[\w-]+", Family("mean")),
    (rf"(all|paraphrase|multi-qa|msmarco)-(multilingual-)?{_BASES}[\w.-]*", Family("mean")),
)
_EXPORT = re.compile(r"[-_.](onnx|int8|fp16|fp32|quantized|q8|q)$")


def family_of(name: str) -> Family | None:
    """Return what a model's family needs, by a hub name or a folder's name; None when unknown.

    Endings of exports (``-onnx``, ``-int8``, ``-Q``) are left out of the comparison.
    """
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].partition("@")[0].lower()
    while (shorter := _EXPORT.sub("", last)) != last:
        last = shorter
    # CLS pooling is an exception among the models of question answering.
    if last.startswith("multi-qa-") and "-cls-" in last:
        return Family("cls")
    return next((family for form, family in _FAMILIES if re.fullmatch(form, last)), None)
