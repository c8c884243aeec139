"""The fluent builder of retrieval pipelines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from nbrag.errors import SpecificationError
from nbrag.protocols import RetrievalQueryProcessor, RetrievalResultProcessor, Retriever
from nbrag.retrieval.pipeline import RetrievalPipeline
from nbrag.spec import BuildContext, PipelineSpec, SpecBuilder, StageSpec, stage_definition

__all__ = ["RetrievalPipelineBuilder"]


class RetrievalPipelineBuilder(SpecBuilder):
    """Builds a :class:`~nbrag.retrieval.pipeline.RetrievalPipeline` stage by stage.

    Parameters
    ----------
    spec
        What has been built so far.
    context
        Where stages find the models.
    """

    def __init__(self, spec: PipelineSpec, context: BuildContext) -> None:
        super().__init__(spec)
        self._context = context

    def _with_spec(self, spec: PipelineSpec) -> Self:
        return type(self)(spec, self._context)

    def use(self, processor: RetrievalQueryProcessor | RetrievalResultProcessor) -> Self:
        """Add an own processor; its base class says whether it runs before or after the search.

        Raises
        ------
        SpecificationError
            When it has neither base class.
        """
        if isinstance(processor, RetrievalQueryProcessor):
            return self._with_spec(self._spec.with_processor(processor, "query"))
        if isinstance(processor, RetrievalResultProcessor):
            return self._with_spec(self._spec.with_processor(processor, "result"))
        raise SpecificationError(
            f"{processor!r} is not a retrieval processor.",
            hint="derive from RetrievalQueryProcessor or RetrievalResultProcessor",
        )

    def use_llm_reranking(self, *, max_results: int | None = None, **options: Any) -> Self:
        """Let the chat model rerank; another name for ``use_reranker(model="llm")``.

        Parameters
        ----------
        max_results
            Results that are kept; None keeps all.
        options
            Further options of the stage ``rerank``.
        """
        return self.stage("rerank", model="llm", keep=max_results, **options)

    def use_cross_encoder(
        self,
        *,
        model_path: str | Path,
        tokenizer_path: str | Path | None = None,
        max_results: int | None = None,
        **options: Any,
    ) -> Self:
        """Let a cross-encoder rerank; another name for ``use_reranker(model=model_path)``.

        Parameters
        ----------
        model_path
            A folder in hub layout, an ``.onnx`` file, or a hub name.
        tokenizer_path
            A ``tokenizer.json`` or its folder, where it is not beside the model.
        max_results
            Results that are kept; None keeps all.
        options
            Further options of the stage ``rerank``.
        """
        from nbrag.retrieval.processors.rerank import reranker_name

        model = reranker_name(model_path)
        tokenizer = None if tokenizer_path is None else str(tokenizer_path)
        return self.stage("rerank", model=model, tokenizer=tokenizer, keep=max_results, **options)

    def build(self, *, strict: bool | None = None) -> RetrievalPipeline:
        """Return the pipeline.

        Parameters
        ----------
        strict
            Whether a stage that fails raises :class:`nbrag.errors.StageError` instead of being
            passed over with a warning; None takes the context's word, which is no.
        """
        context = self._context if strict is None else replace(self._context, strict=strict)
        by_role: dict[str, list[Any]] = {"query": [], "search": [], "result": []}
        answering = self._spec.answer_stage()
        for stage in self._spec.stages:
            if stage is answering:
                # Built when somebody asks: a search needs no chat model for it.
                continue
            if stage.options is None:
                by_role[stage.role].append(stage.processor)
            else:
                definition = stage_definition("retrieval", stage.name)
                by_role[definition.role].append(definition.build(stage.options, context))
        return RetrievalPipeline(
            context.embedder,
            search=by_role["search"][-1] if by_role["search"] else None,
            query_processors=by_role["query"],
            result_processors=by_role["result"],
            spec=self._spec,
            strict=context.strict,
            answering=partial(_orchestrator, answering, context),
        )


def _orchestrator(stage: StageSpec | None, context: BuildContext, retriever: Retriever) -> Any:
    """Return what answers from a retriever: the pipeline's own stage, else a plain answer."""
    definition = stage_definition("retrieval", "answer" if stage is None else stage.name)
    options = definition.options() if stage is None else stage.options
    return definition.build(options, context)(retriever)
