"""Texts on which a prepared model is compared with the original: many kinds, no one's data."""

from __future__ import annotations

__all__ = ["CALIBRATION", "QUESTIONS"]

_PROSE = (
    (
        "Nightly copies of the database are kept for thirty days. A copy is checked by restoring "
        "it into an empty machine once a week; when the check fails, the team on duty is called."
    ),
    (
        "To renew a certificate, ask the authority for a new one, put it beside the old one, and "
        "let the proxy read its settings again. The old one may be removed after a day without "
        "errors."
    ),
    (
        "The cells were kept at 37 degrees in a humid chamber with 5 % carbon dioxide. After 48 "
        "hours the share of living cells had fallen from 92 to 61 per cent in the treated group "
        "(p < 0.01)."
    ),
    (
        "A receptor that binds its ligand changes shape, and the part inside the cell then adds a "
        "phosphate to other proteins. Mutations of that part are frequent in tumours of the lung."
    ),
    (
        "The tenant returns the flat in the condition in which it was taken over, apart from "
        "ordinary wear. The deposit is paid back within six weeks, less the cost of repairs that "
        "are due."
    ),
    (
        "Rates were raised by a quarter of a point in March, the third step in a row. Exporters "
        "had asked for a pause, while savers welcomed the decision; the currency hardly moved."
    ),
    (
        "Melt the butter over low heat, stir in the flour, and add the milk little by little. The "
        "sauce is done when it coats the spoon; season it with nutmeg, salt and white pepper."
    ),
    (
        "The old bridge was built between 1843 and 1847 of red sandstone. Its three arches carried "
        "the railway until 1969; today it is a path for walkers and cyclists along the river."
    ),
    (
        "Light that falls on a metal may free electrons, but only above a certain frequency. This "
        "could not be explained by waves alone, and led to the idea that light comes in portions."
    ),
    (
        "She closed the shop a little earlier that evening, because the rain had driven everyone "
        "home, and walked along the harbour with the letter still unopened in her pocket."
    ),
    (
        "In the second half the visitors pressed high and won the ball again and again near the "
        "box, yet the equaliser fell only in stoppage time, after a corner that nobody had cleared."
    ),
    (
        "A hash table finds an entry in constant time on average: the key is turned into a number, "
        "the number into a place, and entries that share a place are kept in a short list."
    ),
    (
        "Patients with a stent should take both drugs for twelve months. Stopping one of them "
        "earlier doubles the risk of a clot, while bleeding becomes more frequent with age and "
        "weight loss."
    ),
    (
        "Sea ice reflects most of the sunlight, open water swallows it. Where the ice retreats, "
        "the water warms, and more ice melts in the next summer: a loop that strengthens itself."
    ),
)
_SHORT = (
    "How long are copies kept?",
    "certificate renewal without downtime",
    "Does stopping treatment early raise the risk?",
    "ERR-40321 after upgrading to v3.0",
    "who pays for repairs when I move out",
    "zero",
    "C# vs. C++",
    "2.5 kg / 14:30 / -7 %",
)
_OTHER = (
    "def area(radius: float) -> float:\n    return 3.14159 * radius**2\n\nprint(area(2.5))",
    "SELECT name, count(*) FROM orders WHERE placed > '2024-01-31' GROUP BY name ORDER BY 2 DESC;",
    "| size | price |\n|------|-------|\n| S | 9.90 |\n| M | 12.50 |\n| XL | 17.00 |",
    "GET /v1/items?limit=20 HTTP/1.1\nHost: example.org\nAccept: application/json",
    "Die nächtlichen Sicherungen werden dreißig Tage lang aufbewahrt und danach gelöscht.",
    "Le contrat prend fin à la date prévue, sauf si l'une des parties demande sa prolongation.",
    "Las copias de seguridad se guardan durante treinta días en otra región.",
    "Резервные копии хранятся тридцать дней, после чего удаляются.",
    "备份保留三十天。之后自动删除。每周检查一次是否可以恢复。",
    "バックアップは三十日間保存され、その後は自動的に削除されます。",
    "تُحفظ النسخ الاحتياطية ثلاثين يومًا ثم تُحذف.",
    "🔑 key rotated, all good 🎉",
)

#: Short and long, prose, code, tables, and other languages; four fill a model's whole length.
CALIBRATION: tuple[str, ...] = (
    *_PROSE,
    *_SHORT,
    *_OTHER,
    " ".join(_PROSE[0:6]),
    " ".join(_PROSE[6:14]),
    " ".join((*_PROSE[7:14], *_PROSE[0:7])),
    "\n".join((*_OTHER[:4], *_PROSE[2:12])),
)
#: What passages are scored for when the model is a cross-encoder.
QUESTIONS: tuple[str, ...] = (
    "How long are backups kept?",
    "What happens when a drug is stopped early?",
    "How is an entry found quickly?",
)
