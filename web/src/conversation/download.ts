/** Saves what an address of the hub gives, under the name the hub gives it. */
export function download(href: string): void {
  const link = document.createElement("a");
  link.href = href;
  link.download = "";
  document.body.append(link);
  link.click();
  link.remove();
}
