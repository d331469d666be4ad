/** A table that scrolls sideways where it is too wide, also by keyboard. */

import type { ComponentChildren } from "preact";

interface Props {
  /** What the table lists, for screen readers. */
  label: string;
  /** Titles of the columns; "" for one of buttons. */
  columns: readonly string[];
  /** The rows. */
  children: ComponentChildren;
}

export function Table({ label, columns, children }: Props) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>{columns.map((each) => (each === "" ? <td key={each} /> : <Heading key={each} text={each} />))}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

function Heading({ text }: { text: string }) {
  return <th scope="col">{text}</th>;
}
