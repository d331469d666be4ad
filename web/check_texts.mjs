/** Fails if a source besides `src/texts` has words that people read or a locale: in the text or a read attribute of an
 * element, or as an argument of `Intl` or of a method that formats by locale. */

import { readdirSync, readFileSync } from "node:fs";
import ts from "typescript";

const READ = new Set(["alt", "aria-label", "aria-description", "label", "placeholder", "title"]);
/** A unit, which is the same in all languages. */
const UNIT = /^\s*(?:k?Hz|m?s|[kMGT]?B)\s*$/;
const source = `${import.meta.dirname}/src`;
const found = readdirSync(source, { recursive: true })
  .filter((path) => /\.tsx?$/.test(path) && !path.startsWith("texts/en.") && path !== "api/schema.ts")
  .flatMap((path) => {
    const file = ts.createSourceFile(
      path,
      readFileSync(`${source}/${path}`, "utf8"),
      ts.ScriptTarget.Latest,
      true,
      path.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS,
    );
    return wordsOf(file).map((node) => {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      return `web/src/${path}:${line + 1}: ${node.getText().trim()} belongs into src/texts/en.ts`;
    });
  });
for (const each of found) console.error(each);
process.exit(found.length > 0 ? 1 : 0);

/** The parts of a node that belong into the texts. */
function wordsOf(node) {
  const own = isWords(node) || isLocale(node) ? [node] : [];
  const below = [];
  ts.forEachChild(node, (child) => {
    below.push(...wordsOf(child));
  });
  return [...own, ...below];
}

function isWords(node) {
  if (ts.isJsxText(node)) return /\p{L}/u.test(node.text) && !UNIT.test(node.text);
  if (!ts.isStringLiteralLike(node) || !/\p{L}/u.test(node.text)) return false;
  const parent = ts.isJsxExpression(node.parent) ? node.parent.parent : node.parent;
  if (ts.isJsxAttribute(parent)) return READ.has(parent.name.getText());
  return ts.isJsxElement(parent);
}

function isLocale(node) {
  if (!ts.isStringLiteralLike(node)) return false;
  const { parent } = node;
  if (!(ts.isNewExpression(parent) || ts.isCallExpression(parent)) || parent.arguments?.[0] !== node) return false;
  const called = parent.expression.getText();
  return called.startsWith("Intl.") || /\.(?:toLocale\w*String|localeCompare)$/.test(called);
}
