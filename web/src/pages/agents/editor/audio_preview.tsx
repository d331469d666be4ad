/** A player of a short file of the API. */

interface Props {
  label: string;
  /** A path of the API. */
  url: string;
}

export function AudioPreview({ label, url }: Props) {
  return (
    <figure class="audio-preview">
      <figcaption class="quiet">{label}</figcaption>
      {/* biome-ignore lint/a11y/useMediaCaption: a sample of a voice or a sound has no words to caption */}
      <audio key={url} controls preload="none" src={url} aria-label={label} />
    </figure>
  );
}
