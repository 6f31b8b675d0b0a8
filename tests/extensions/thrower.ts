// Throws in the handlers of two events, one of them once per delta. pi must report it and go on.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
	for (const name of ["turn_start", "message_update"] as const) {
		pi.on(name, async () => {
			throw new Error(`thrown in ${name}`);
		});
	}
}
