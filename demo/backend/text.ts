/** Text as the demonstration's models see it: words, sentences, hashes, and how common a word is in the shipped corpus. */

/** Lower-case words of a text; numbers count as words. */
export function words(text: string): string[] {
  return text.normalize("NFC").toLowerCase().match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu) ?? [];
}

/** Non-empty lines. */
export function lines(text: string): string[] {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}

/** 32-bit FNV-1a of a text's UTF-16 units, with a final mix so that all bits of the result may be used. */
export function hash32(text: string, seed = 0): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  hash ^= hash >>> 12;
  return hash >>> 0;
}

/** How rare words are: the tables behind the weights of embeddings and scores. */
export class WordStatistics {
  #documents = 0;
  #words = 0;
  readonly #inDocuments = new Map<string, number>();

  /** Counts one document. */
  add(document: string): void {
    const found = words(document);
    this.#documents++;
    this.#words += found.length;
    for (const word of new Set(found)) this.#inDocuments.set(word, (this.#inDocuments.get(word) ?? 0) + 1);
  }

  /** Average length of a document in words. */
  get averageLength(): number {
    return this.#documents === 0 ? 1 : this.#words / this.#documents;
  }

  /** Inverse document frequency, above 0; unknown words are the rarest. */
  rarity(word: string): number {
    const count = this.#inDocuments.get(word) ?? 0;
    return Math.log(1 + (this.#documents - count + 0.5) / (count + 0.5));
  }
}
