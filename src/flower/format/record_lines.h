/// \file  Converts a message's content to a line for a Flower app and back: records as JSON, arrays as NumPy images in
/// shared memory (docs/json-lines.md, "Records").
#pragma once

#include "flower/format/lines.h"
#include "flower/format/record_dict.h"

namespace evenkeel::flower {

/// Returns sealed memory with the images of all arrays; null without arrays. Contents with the same arrays may share
/// it.
std::shared_ptr<SharedMemory> images_of(const Content& content);
/// Returns the line's "records", with offsets into the memory of images_of().
OrderedJson records_of(const Content& content);

/// Reads a content.
/// \param records  the line's "records"
/// \param memory   the line's memory; null: none
/// \param place    returns the buffers for the arrays; called before any data is read
/// \throws kData when records and memory do not fit each other or exceed `limits`
Content read_records(const JsonView& records, const SharedMemory* memory, const BufferAllocator& place,
                     const Limits& limits = {});

}  // namespace evenkeel::flower
