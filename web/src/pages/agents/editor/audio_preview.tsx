/** A player of a short file of this server. */

interface Props {
  label: string;
  /** A link of the API. Its path is opened at the page's own address: the server may have several. */
  url: string;
}

export function AudioPreview({ label, url }: Props) {
  const { pathname, search } = new URL(url, location.href);
  return (
    <figure class="audio-preview">
      <figcaption class="quiet">{label}</figcaption>
      {/* biome-ignore lint/a11y/useMediaCaption: a sample of a voice or a sound has no words to caption */}
      <audio key={pathname} controls preload="none" src={pathname + search} aria-label={label} />
    </figure>
  );
}
