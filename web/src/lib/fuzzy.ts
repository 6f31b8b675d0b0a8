/** How well a text matches what was typed: higher is better, nothing when it does not. */
export interface Match {
  score: number;
  /** Where the letters are, for showing them. */
  at: number[];
}

const WORD_START = 8;
const IN_A_ROW = 5;
const GAP_COST = 0.3;

/**
 * All typed letters must occur in this order; those at the start of words and in a row count more. An exact part of
 * the text goes before scattered letters.
 */
export function fuzzy(typed: string, text: string): Match | undefined {
  const wanted = typed.toLowerCase().replace(/\s+/g, "");
  if (wanted === "") return { score: 0, at: [] };
  const lower = text.toLowerCase();
  const whole = lower.indexOf(typed.trim().toLowerCase());
  if (whole >= 0) {
    const length = typed.trim().length;
    const bonus = whole === 0 || isWordStart(text, whole) ? 60 : 30;
    return { score: bonus + length * 4 - whole * 0.1 - text.length * 0.01, at: Array.from({ length }, (_, index) => whole + index) };
  }
  return scattered(wanted, lower, text);
}

function scattered(wanted: string, lower: string, text: string): Match | undefined {
  const at: number[] = [];
  let score = 0;
  let from = 0;
  for (const letter of wanted) {
    const place = bestPlace(letter, lower, text, from);
    if (place < 0) return undefined;
    const before = at.at(-1);
    if (before !== undefined && place === before + 1) score += IN_A_ROW;
    else if (isWordStart(text, place)) score += WORD_START;
    score += 1 - Math.min(10, place - from) * GAP_COST;
    at.push(place);
    from = place + 1;
  }
  return { score: score - text.length * 0.01, at };
}

/** The next place of a letter, at the start of a word if one is near. */
function bestPlace(letter: string, lower: string, text: string, from: number): number {
  const first = lower.indexOf(letter, from);
  if (first < 0 || first === from || isWordStart(text, first)) return first;
  for (let place = first; place >= 0 && place < first + 20; place = lower.indexOf(letter, place + 1)) {
    if (isWordStart(text, place)) return place;
  }
  return first;
}

function isWordStart(text: string, at: number): boolean {
  return at === 0 || /[\s/_.\-:·]/.test(text[at - 1] ?? "");
}
