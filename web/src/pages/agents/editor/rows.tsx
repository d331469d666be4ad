/** A list of parts of an agent, each in a group of fields of its own, with a button that adds one and one that removes
 * each. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

import type { Draft } from "./draft";

interface Props<T> {
  draft: Draft;
  name: string;
  texts: {
    label: string;
    help: string;
    add: string;
    item: (number: number) => string;
    remove: (name: string) => string;
  };
  items: readonly T[];
  most: number;
  empty: T;
  onChange: (items: T[]) => void;
  /** The fields of an item; `path` is the path of the item in the body, `change` replaces it. */
  children: (item: T, path: string, change: (changes: Partial<T>) => void) => ComponentChildren;
}

export function Rows<T extends { name: string }>(props: Props<T>) {
  const { draft, name, texts, items, most, empty, onChange, children } = props;
  const id = useId();
  return (
    <section class="field" data-field={name} aria-labelledby={id}>
      <h3 id={id}>{texts.label}</h3>
      <p class="help">{texts.help}</p>
      {items.map((item, index) => (
        <fieldset key={index} class="row-fields" disabled={draft.readOnly}>
          <legend>{texts.item(index + 1)}</legend>
          {children(item, `${name}.${index}`, (changes) =>
            onChange(items.map((each, at) => (at === index ? { ...each, ...changes } : each))),
          )}
          {!draft.readOnly && (
            <button type="button" onClick={() => onChange(items.filter((_, at) => at !== index))}>
              {texts.remove(item.name)}
            </button>
          )}
        </fieldset>
      ))}
      <p class="problem">{draft.problemBelow(name)}</p>
      {!draft.readOnly && (
        <button type="button" disabled={items.length >= most} onClick={() => onChange([...items, empty])}>
          {texts.add}
        </button>
      )}
    </section>
  );
}
