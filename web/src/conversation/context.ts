import type { Message } from "@quarterdeck/client";
import { createContext } from "svelte";
import type { SessionView } from "../lib/session/view.svelte.ts";

/** What everything inside a conversation needs to know. */
export interface Conversation {
  readonly view: SessionView;
  /** Where a path of the session's directory is shown. */
  fileHref(path: string): string;
  /** Goes back to before a message of the person and lets them write it anew. */
  fork(message: Message): void;
  readonly canFork: boolean;
  /** Sends a message again that the agent may not have read; none when that is not possible or was done already. */
  sendAgain(message: Message): (() => void) | undefined;
}

export const [conversation, setConversation] = createContext<Conversation>();
