/// \file  Converts a message's content to a line for a Flower app and back: records as JSON, arrays as NumPy images in
/// shared memory (docs/flower-app.md, "Records").
#pragma once

#include "flower/format/lines.h"
#include "flower/format/record_dict.h"

namespace evenkeel::flower {

/// Returns sealed memory with the images of all arrays; null without arrays. Contents with the same arrays may share
/// it.
std::shared_ptr<SharedMemory> images_of(const Content& content);
/// Returns the line's "records", with offsets into the memory of images_of().
OrderedJson records_of(const Content& content);

/// Reads a content. \param records the line's "records" \param place returns the buffers, before any data is read
Content read_records(const JsonView& records, const SharedMemory* memory, const BufferAllocator& place,
                     const Limits& limits = {});

}  // namespace evenkeel::flower
