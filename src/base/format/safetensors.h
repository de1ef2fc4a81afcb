/// \file  The safetensors format: an 8-byte little-endian header length, a JSON header, then raw tensor bytes; as a
/// file or as bytes in memory. Reading maps the file: tensors are views of it, read-only by convention, and keep the
/// mapping alive.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

using TensorMap = std::map<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  TensorMap tensors;  ///< CPU, contiguous; dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL
  Metadata metadata;
};

/// Where a tensor lies in a file.
struct TensorPlace {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes, counted from the end of the header
};

/// What the beginning of a file says of all of it.
struct SafetensorsHead {
  std::vector<TensorPlace> tensors;  ///< as they lie: none overlap, nothing lies between them
  Metadata metadata;
  int64_t bytes = 0;  ///< of the length and the header, in front of the first tensor
  int64_t data_bytes() const { return tensors.empty() ? 0 : static_cast<int64_t>(tensors.back().end); }
};

/// Reads the beginning of a file; what follows the header is not looked at. \param place  whose bytes they are, for
/// errors. \throws kCheckpoint as load_safetensors()
SafetensorsHead read_safetensors_head(std::string_view bytes, const std::string& place);

/// Maps `file`. Strict: \throws kCheckpoint (file, tensor, what is wrong) on a truncated file, a header that is not
/// JSON or too large, unknown dtype, byte ranges that overlap, leave holes, run out of the file or disagree with dtype
/// and shape.
Safetensors load_safetensors(const std::filesystem::path& file);
/// The same of bytes in memory, [N] uint8, which the tensors are views of and keep alive.
/// \param place  whose bytes they are, for errors
Safetensors decode_safetensors(const at::Tensor& bytes, const std::string& place);

/// Writes atomically, one tensor after the other (made contiguous on CPU on the way), wide dtypes first, then by name,
/// data at a multiple of 64 bytes. Deterministic: same content, same bytes. \return bytes written.
int64_t save_safetensors(const std::filesystem::path& file, const TensorMap& tensors, const Metadata& metadata = {});

/// What the tensors of a file are sorted by within a width, before their names.
using SortKey = std::function<std::string(const std::string& name, const at::Tensor& tensor)>;

/// The bytes that save_safetensors would write, [N] uint8. \param key  puts tensors side by side; none: names alone
at::Tensor encode_safetensors(const TensorMap& tensors, const Metadata& metadata = {}, const SortKey& key = {});
/// The same of the tensors in the types that those of `shapes` (meta tensors, as many by the same names) have;
/// converted where they are written.
at::Tensor encode_safetensors_as(const TensorMap& shapes, const TensorMap& tensors, const Metadata& metadata,
                                 const SortKey& key);

/// Makes the tensor of that name when its turn comes.
using TensorMaker = std::function<at::Tensor(const std::string& name)>;

/// The same file of tensors that are made one after the other: one is in memory at a time.
/// \param shapes  names, sizes and dtypes; tensors without storage (device meta) will do.
int64_t stream_safetensors(const std::filesystem::path& file, const TensorMap& shapes, const TensorMaker& make,
                           const Metadata& metadata = {});

/// The length that would be written, without writing.
int64_t safetensors_size(const TensorMap& tensors, const Metadata& metadata = {}, const SortKey& key = {});

}  // namespace evenkeel
