/* Python's side of a slot: it writes what is to be sent, and reads what was sent and received. */
#include "pump/slot.h"

#include "pump/sample_ring.h"

uint32_t slot_write(slot_t *slot, const int16_t *samples, uint32_t count)
{
    uint64_t written = atomic_load_explicit(&slot->tx_written, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&slot->tx_read, memory_order_acquire);
    if (read == written)
        atomic_store_explicit(&slot->tx_base, written, memory_order_release);
    uint64_t base = atomic_load_explicit(&slot->tx_base, memory_order_relaxed);
    uint64_t limit = (uint64_t)atomic_load(&slot->rate) * TX_MS / 1000, room = limit - (written - read);
    uint32_t fits = count < room ? count : (uint32_t)room;
    put_samples(slot->tx, written - base, slot->tx_mask, samples, fits);
    atomic_store_explicit(&slot->tx_written, written + fits, memory_order_release);
    return fits;
}

/* Drops queued samples and ends a pause; returns the position up to which samples were sent. */
uint64_t slot_flush(slot_t *slot)
{
    uint64_t written = atomic_load_explicit(&slot->tx_written, memory_order_relaxed);
    uint64_t read = atomic_load(&slot->tx_read);
    while (!atomic_compare_exchange_weak(&slot->tx_read, &read, written))
        ;
    if (atomic_exchange(&slot->open, false) || read != written)
        atomic_fetch_add(&slot->interruptions, 1);
    atomic_store(&slot->paused, false);
    fade_on_flush(&slot->fade);
    return read;
}

uint32_t slot_read(slot_t *slot, int16_t *rx_audio, int16_t *tx_audio, uint32_t capacity, uint32_t least, uint64_t *position)
{
    uint64_t read = atomic_load(&slot->rx_read);
    for (;;) {
        uint64_t written = atomic_load_explicit(&slot->rx_written, memory_order_acquire);
        uint32_t count = written - read < capacity ? (uint32_t)(written - read) : capacity;
        if (count < least)
            count = 0;
        get_samples(slot->rx_audio, read, slot->rx_mask, rx_audio, count);
        get_samples(slot->tx_audio, read, slot->rx_mask, tx_audio, count);
        *position = read;
        if (atomic_compare_exchange_strong(&slot->rx_read, &read, read + count))
            return count;
    }
}
