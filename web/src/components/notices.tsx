/** Short notices of what was done, read out by screen readers; each goes after some seconds. */

import { signal } from "@preact/signals";

const SHOWN_MS = 6000;
const notices = signal<readonly { id: number; text: string }[]>([]);
let last = 0;

export function notify(text: string): void {
  last += 1;
  const id = last;
  notices.value = [...notices.value, { id, text }];
  setTimeout(() => {
    notices.value = notices.value.filter((each) => each.id !== id);
  }, SHOWN_MS);
}

export function Notices() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notices.value.map(({ id, text }) => (
        <p key={id} class="toast">
          {text}
        </p>
      ))}
    </div>
  );
}
