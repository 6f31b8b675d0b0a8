import type { Terminal } from "@xterm/xterm";

/** Scrolls with a finger, which xterm leaves to us. A full-screen program gets arrow keys, as it would of a wheel. */
export function scrollByTouch(host: HTMLElement, terminal: Terminal, press: (keys: string) => void): () => void {
  let last: number | undefined;
  let rest = 0;
  const begin = (event: TouchEvent): void => {
    last = event.touches.length === 1 ? event.touches[0]?.clientY : undefined;
    rest = 0;
  };
  const move = (event: TouchEvent): void => {
    const now = event.touches[0]?.clientY;
    if (last === undefined || now === undefined) return;
    const lineHeight = host.clientHeight / Math.max(1, terminal.rows);
    rest += (last - now) / lineHeight;
    last = now;
    const lines = Math.trunc(rest);
    if (lines === 0) return;
    rest -= lines;
    event.preventDefault();
    if (terminal.buffer.active.type === "normal") terminal.scrollLines(lines);
    else press(arrow(lines, terminal.modes.applicationCursorKeysMode).repeat(Math.min(10, Math.abs(lines))));
  };
  host.addEventListener("touchstart", begin, { passive: true });
  host.addEventListener("touchmove", move, { passive: false });
  return () => {
    host.removeEventListener("touchstart", begin);
    host.removeEventListener("touchmove", move);
  };
}

function arrow(lines: number, isApplication: boolean): string {
  return `\u001b${isApplication ? "O" : "["}${lines > 0 ? "B" : "A"}`;
}
