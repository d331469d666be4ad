/** Tabs with their panel: arrow keys, Home and End move between them (ARIA Authoring Practices). */

import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";

interface Props<Name extends string> {
  label: string;
  /** Name and title of each tab. */
  tabs: readonly (readonly [Name, string])[];
  selected: Name;
  onSelect: (name: Name) => void;
  /** The panel of the selected tab. */
  children: ComponentChildren;
}

export function Tabs<Name extends string>({ label, tabs, selected, onSelect, children }: Props<Name>) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const names = tabs.map(([name]) => name);

  function move(event: KeyboardEvent) {
    const at = names.indexOf(selected);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    const name = to === undefined ? undefined : names[(to + names.length) % names.length];
    if (name === undefined) return;
    event.preventDefault();
    onSelect(name);
    list.current?.querySelector<HTMLElement>(`#${CSS.escape(`${id}-${name}`)}`)?.focus();
  }

  return (
    <>
      <div ref={list} class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(([name, title]) => (
          <button
            key={name}
            id={`${id}-${name}`}
            type="button"
            role="tab"
            aria-selected={name === selected}
            aria-controls={`${id}-panel`}
            tabIndex={name === selected ? 0 : -1}
            onClick={() => onSelect(name)}
          >
            {title}
          </button>
        ))}
      </div>
      <section id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${selected}`}>
        {children}
      </section>
    </>
  );
}
