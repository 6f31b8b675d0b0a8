/** The place where a search found something, cut into what was found and what stands around it. */

export interface SnippetPiece {
  text: string;
  isFound: boolean;
}

/**
 * Cuts a snippet at the brackets the hub put around the words found. Text has brackets of its own, so a pair counts
 * only when a word of the query is in it.
 */
export function piecesOf(snippet: string, query: string): SnippetPiece[] {
  const wanted = wantedWords(query);
  const pieces: SnippetPiece[] = [];
  let plain = "";
  let rest = 0;
  for (const match of snippet.matchAll(/\[([^[\]]+)\]/g)) {
    const inside = match[1] ?? "";
    if (!wordsOf(inside).some((word) => wanted.some((one) => isIt(word, one)))) continue;
    plain = snippet.slice(rest, match.index);
    if (plain !== "") pieces.push({ text: plain, isFound: false });
    pieces.push({ text: inside, isFound: true });
    rest = match.index + match[0].length;
  }
  plain = snippet.slice(rest);
  if (plain !== "") pieces.push({ text: plain, isFound: false });
  return pieces;
}

interface WantedWord {
  word: string;
  isBeginning: boolean;
}

/** The words of a query; one that ends in a star stands for all that begin so. */
function wantedWords(query: string): WantedWord[] {
  return query.split(/\s+/).flatMap((part) => {
    const words = wordsOf(part);
    return words.map((word, at) => ({ word, isBeginning: part.endsWith("*") && at === words.length - 1 }));
  });
}

function isIt(word: string, wanted: WantedWord): boolean {
  return wanted.isBeginning ? word.startsWith(wanted.word) : word === wanted.word;
}

/** Words as the index has them: letters and digits, small, without accents. */
function wordsOf(text: string): string[] {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}
