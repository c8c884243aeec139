"""Make the tiny classifiers of the tests, and the logits that the reference gives for them.

    python make_models.py

Needs torch and transformers (the reference implementation) and onnx; none of them is needed to
run the tests. Three sequence classifiers with random weights, in the layout of the hub, each at
most 300 kB: BERT's shape (segment ids; written to ``notebooks/models``, where a notebook uses it
too), XLM-RoBERTa's (no segment ids, doubled separators), and ModernBERT's (byte-level tokens,
rotary positions). ``golden.json`` holds 200 pairs of texts and, for each model, the logits of
transformers, one pair at a time, with only the passage cut at the model's 128 tokens.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
HANDBOOK = REPOSITORY / "notebooks" / "corpus" / "handbook"
FOLDERS = {
    "bert": REPOSITORY / "notebooks" / "models" / "tiny-random-bert",
    "xlm-roberta": HERE / "models" / "tiny-random-xlm-roberta",
    "modernbert": HERE / "models" / "tiny-random-modernbert",
}
LIMIT = 128
VOCABULARY = 500
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    # Wide, so that logits of different pairs differ.
    "initializer_range": 0.25,
    "num_labels": 1,
    "attn_implementation": "eager",
}

QUESTIONS = [
    "How long are nightly copies kept?",
    "Wie lange werden nächtliche Sicherungen aufbewahrt?",
    "备份保留多少天？",
    "夜間バックアップは何日間保存されますか",
    "where is the 🔑 kept 🚪?",
    "ERR-40321 after upgrading to v3.0, what now",
    "x",
    "café naïve Ångström ﬁle ½",
    (
        "Which region keeps its recovery points for more than thirty days, and does that also hold "
        "for the customers who moved there from another release line, or only for new ones?"
    ),
    "¿Dónde están los registros de auditoría?",
]
SENTENCE = "The copy of the night is kept for thirty days and then removed without a further word. "
PASSAGES = [
    "Nightly copies are kept for thirty days.",
    "Weekly copies are kept for a year; monthly ones until the contract ends.",
    "",
    " \t\n ",
    "🙂🚀🔥",
    "The key 🔑 hangs beside the door 🚪, behind the 🐈.",
    "备份每天夜里进行，保留三十天。之后自动删除。",
    "バックアップは毎晩行われ、三十日間保存されます。",
    "백업은 매일 밤 만들어지고 30일 동안 보관됩니다.",
    "Die Sicherungen der Nacht bleiben dreißig Tage; danach werden sie gelöscht.",
    "ERR-40321: the index is older than v3.0. Rebuild it with `crate index --all`.",
    'def keep(days: int = 30) -> bool:\n    return days > 0  # {not} <html> & "quoted"',
    "النسخ الليلية تحفظ ثلاثين يوما",
    "e\u0301 and é, ﬁ and fi, ½ and 1/2, \u200bzero\u200bwidth, \u00a0blank",
    "1234567890 " * 6,
    SENTENCE * 3,
    SENTENCE * 8,
    "夜间备份保留三十天。" * 40,
    "🙂 no 🚀 end 🔥 " * 60,
    "antidisestablishmentarianism" * 25,
]


def training_text() -> list[str]:
    """Return the text that vocabularies are made from."""
    pages = [path.read_text("utf-8") for path in sorted(HANDBOOK.rglob("*.md"))]
    return [*pages, *(QUESTIONS + PASSAGES) * 20]


def bert_tokenizer() -> Tokenizer:
    """WordPiece in lower case, segments 0 and 1."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=special, limit_alphabet=200, show_progress=False
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def xlm_roberta_tokenizer() -> Tokenizer:
    """Pieces of a unigram model, separators doubled, one segment."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace("  ", " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def modernbert_tokenizer() -> Tokenizer:
    """Byte-level pairs, one segment."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def made(kind: str) -> tuple[Any, Tokenizer, dict[str, str], tuple[str, ...]]:
    """Return (classifier, tokenizer, names of special tokens, inputs) of one kind."""
    torch.manual_seed(20261130)
    ordinary = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    if kind == "bert":
        tokenizer = bert_tokenizer()
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            max_position_embeddings=LIMIT,
            pad_token_id=0,
            **SHAPE,
        )
        inputs = ("input_ids", "attention_mask", "token_type_ids")
        return BertForSequenceClassification(config), tokenizer, ordinary, inputs
    if kind == "xlm-roberta":
        tokenizer = xlm_roberta_tokenizer()
        config = XLMRobertaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            max_position_embeddings=LIMIT + 2,
            type_vocab_size=1,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            **SHAPE,
        )
        named = {
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "mask_token": "<mask>",
        }
        inputs = ("input_ids", "attention_mask")
        return XLMRobertaForSequenceClassification(config), tokenizer, named, inputs
    tokenizer = modernbert_tokenizer()
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=LIMIT,
        pad_token_id=0,
        bos_token_id=2,
        cls_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
        local_attention=16,
        global_attn_every_n_layers=2,
        **SHAPE,
    )
    inputs = ("input_ids", "attention_mask")
    return ModernBertForSequenceClassification(config), tokenizer, ordinary, inputs


def reference_logits(model: Any, tokenizer: Any, pairs: list[tuple[str, str]]) -> list[float]:
    """Return transformers' own logit of each pair, one at a time."""
    found = []
    for question, passage in pairs:
        # As lists: a single empty passage would be taken for none, and the pair for one text.
        encoded = tokenizer(
            [question], [passage], truncation="only_second", max_length=LIMIT, return_tensors="pt"
        )
        with torch.no_grad():
            found.append(round(float(model(**encoded).logits[0, 0]), 6))
    return found


def export(model: Any, inputs: tuple[str, ...], path: Path) -> None:
    """Write the classifier as one ONNX file without names of this machine."""
    ids = torch.tensor([[2, 9, 3, 11, 12, 3], [2, 8, 3, 10, 3, 0]])
    mask = torch.tensor([[1] * 6, [1] * 5 + [0]])
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        model,
        (),
        str(path),
        kwargs={name: values[name] for name in inputs},
        input_names=list(inputs),
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(inputs, shape),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    graph = onnx.load(path)
    del graph.metadata_props[:]
    graph.doc_string = ""
    for owner in (graph.graph, *graph.functions):
        del owner.metadata_props[:]
        owner.doc_string = ""
        for node in owner.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for entry in (*graph.graph.initializer, *graph.graph.value_info):
        del entry.metadata_props[:]
    del graph.graph.value_info[:]
    onnx.checker.check_model(graph)
    onnx.save(graph, path)


def write_json(path: Path, content: Any) -> None:
    """Write JSON with its own characters."""
    text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
    path.write_text(text + "\n", "utf-8")


def main() -> None:
    """Make everything anew."""
    warnings.simplefilter("ignore")
    pairs = [(question, passage) for question in QUESTIONS for passage in PASSAGES]
    golden: dict[str, Any] = {"questions": QUESTIONS, "passages": PASSAGES, "logits": {}}
    for kind, folder in FOLDERS.items():
        model, fast, special, inputs = made(kind)
        model.eval()
        export(model, inputs, folder / "model.onnx")
        described = model.config.to_dict()
        described.pop("_name_or_path", None)
        write_json(folder / "config.json", described)
        write_json(folder / "tokenizer_config.json", {"model_max_length": LIMIT, **special})
        (folder / "tokenizer.json").write_text(fast.to_str(pretty=False) + "\n", "utf-8")
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=fast,
            model_input_names=list(inputs),
            model_max_length=LIMIT,
            padding_side="right",
            **special,
        )
        golden["logits"][kind] = reference_logits(model, tokenizer, pairs)
        logits = golden["logits"][kind]
        print(kind, (folder / "model.onnx").stat().st_size, min(logits), max(logits))  # noqa: T201
    write_json(HERE / "golden.json", golden)


if __name__ == "__main__":
    main()
