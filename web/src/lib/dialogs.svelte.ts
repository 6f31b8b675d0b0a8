/** Asks the person before something that cannot be undone, or for one line of text. `Dialogs.svelte` shows it. */
export interface Confirmation {
  title: string;
  text: string;
  /** What the button says: a verb. */
  action: string;
  danger?: boolean;
}

export interface TextQuestion {
  title: string;
  label: string;
  value?: string;
  action?: string;
}

type OpenDialog =
  | { kind: "confirm"; question: Confirmation; done: (answer: boolean) => void }
  | { kind: "text"; question: TextQuestion; done: (answer: string | undefined) => void };

class Dialogs {
  current = $state.raw<OpenDialog | undefined>();

  ask(open: OpenDialog): void {
    this.cancel();
    this.current = open;
  }

  cancel(): void {
    const open = this.current;
    this.current = undefined;
    if (open?.kind === "confirm") open.done(false);
    else open?.done(undefined);
  }

  accept(text: string): void {
    const open = this.current;
    this.current = undefined;
    if (open?.kind === "confirm") open.done(true);
    else open?.done(text);
  }
}

export const dialogs = new Dialogs();

/** Resolves to whether the person wants it. */
export function confirm(question: Confirmation): Promise<boolean> {
  return new Promise((done) => dialogs.ask({ kind: "confirm", question, done }));
}

/** Resolves to what was typed, or to nothing when the person changed their mind. */
export function askText(question: TextQuestion): Promise<string | undefined> {
  return new Promise((done) => dialogs.ask({ kind: "text", question, done }));
}
