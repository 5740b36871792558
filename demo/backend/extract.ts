/** Entities by pattern: e-mail addresses, URLs, dates, amounts, and names by their capitals. Deterministic. */

/** A stretch of the text. Offsets count characters (code points), as the peers' do. */
export interface Entity {
  readonly text: string;
  readonly label: string;
  readonly score: number;
  readonly start: number;
  readonly end: number;
}

const MONTHS = "(?:January|February|March|April|May|June|July|August|September|October|November|December)";
const CURRENCY = "(?:EUR|USD|GBP|CHF|euros?|dollars?|pounds?|francs?)";
const NUMBER = "\\d{1,3}(?:[,.\\u00a0 ]\\d{3})*(?:[.,]\\d{1,2})?";

/** Patterns in the order of their precedence: what an earlier one has taken, a later one leaves alone. */
const PATTERNS: readonly { readonly label: string; readonly score: number; readonly pattern: RegExp }[] = [
  { label: "url", score: 0.99, pattern: /\bhttps?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?]/gu },
  { label: "email", score: 0.99, pattern: /\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.\p{L}{2,}\b/gu },
  { label: "date", score: 0.95, pattern: /\b\d{4}-\d{2}-\d{2}\b/gu },
  { label: "date", score: 0.95, pattern: new RegExp(`\\b\\d{1,2}\\.? ${MONTHS}(?: \\d{4})?\\b`, "gu") },
  { label: "date", score: 0.95, pattern: new RegExp(`\\b${MONTHS} \\d{1,2}(?:, \\d{4})?\\b`, "gu") },
  { label: "amount", score: 0.9, pattern: new RegExp(`[€$£] ?${NUMBER}(?: (?:million|billion))?`, "gu") },
  { label: "amount", score: 0.9, pattern: new RegExp(`\\b${NUMBER} ?(?:million |billion )?${CURRENCY}\\b`, "gu") },
  // Two capitalised words in a row are a name wherever they stand …
  { label: "name", score: 0.8, pattern: /\b\p{Lu}[\p{L}'’-]+(?: (?:van |von |de |of )?\p{Lu}[\p{L}'’-]+)+/gu },
  // … and one is if it does not begin a sentence.
  { label: "name", score: 0.6, pattern: /(?<=[\p{Ll}\p{N},;] )\p{Lu}[\p{Ll}'’-]+/gu },
];

/** Other words for the labels, as callers may ask for them. */
const SYNONYMS: Readonly<Record<string, string>> = {
  "e-mail": "email",
  link: "url",
  website: "url",
  money: "amount",
  price: "amount",
  time: "date",
  day: "date",
  person: "name",
  place: "name",
  organization: "name",
  organisation: "name",
};

/**
 * All entities in the order of the text.
 *
 * @param labels the ones wanted, under the caller's own words; all when absent
 */
export function extractEntities(text: string, labels?: readonly string[]): Entity[] {
  const wanted = new Map<string, string>();
  for (const label of labels ?? []) {
    const known = SYNONYMS[label.toLowerCase()] ?? label.toLowerCase();
    if (!wanted.has(known)) wanted.set(known, label);
  }
  // One mark a UTF-16 unit: an unusual text may hold very many entities.
  const claimed = new Uint8Array(text.length);
  const found: { readonly at: number; readonly text: string; readonly label: string; readonly score: number }[] = [];
  for (const { label, score, pattern } of PATTERNS) {
    for (const match of text.matchAll(pattern)) {
      const end = match.index + match[0].length;
      if (claimed.subarray(match.index, end).includes(1)) continue;
      claimed.fill(1, match.index, end);
      if (labels === undefined || wanted.has(label)) {
        found.push({ at: match.index, text: match[0], label: wanted.get(label) ?? label, score });
      }
    }
  }
  found.sort((a, b) => a.at - b.at);
  let counted = 0, start = 0;
  return found.map(({ at, text: stretch, label, score }) => {
    start += characters(text.slice(counted, at));
    counted = at;
    return { text: stretch, label, score, start, end: start + characters(stretch) };
  });
}

/** Code points of a text. */
export function characters(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at++) {
    const low = text.charCodeAt(at);
    if (low < 0xdc00 || low > 0xdfff) count++;
  }
  return count;
}
