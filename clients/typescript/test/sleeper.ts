/** A client in a process of its own, which a test puts to sleep: says what it sees after every change. */
import { Quarterdeck } from "../src/index.ts";

const [url, token, sessionId] = process.argv.slice(2) as [string, string, string];
const client = new Quarterdeck({ url, token, silenceMs: 60_000, freezeMs: 1_000 });
client.connect();
const session = client.session(sessionId);
const say = () => {
  const { state } = client.connection;
  console.log(JSON.stringify({ count: session.messages.length, state, partial: session.partial !== undefined }));
};
session.onChange(say);
client.onConnection(say);
