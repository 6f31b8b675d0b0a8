// A syntax error on purpose: pi must fail to start with this extension.
export default function (pi) { this is not a program
