/**
 * A program may ask its terminal questions (where is the cursor, which colours), and xterm answers through the same
 * door as the keyboard. Several browsers may look at one terminal: only one of them may answer, and none to what is
 * drawn again.
 */

/** Cursor position, device attributes, status, window size, mode and key-mode reports. */
const REPORT = /^\u001b\[[?>=]?[\d;]*(?:[cnRtu]|\$y)$/;

/** Colours, version and settings: control strings. */
const CONTROL_STRING = /^\u001b[\]P][^\u0007\u001b]*(?:\u0007|\u001b\\)$/;

/** Whether xterm says this by itself, and not because somebody pressed a key. */
export function isReply(data: string): boolean {
  return REPORT.test(data) || CONTROL_STRING.test(data);
}
