/** The hub takes none that is shorter. */
export const PASSWORD_LENGTH_MIN = 8;

/** A password for somebody else, who changes it: five groups of letters and digits that cannot be taken for another. */
export function madePassword(): string {
  const signs = "abcdefghjkmnpqrstuvwxyz23456789";
  const random = crypto.getRandomValues(new Uint32Array(20));
  const text = [...random].map((number) => signs[number % signs.length]).join("");
  return text.match(/.{4}/g)?.join("-") ?? text;
}
