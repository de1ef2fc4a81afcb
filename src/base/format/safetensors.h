/// \file  Reads and writes the safetensors format: an 8-byte little-endian header length, a JSON header, then the raw
/// bytes of the tensors. Reading maps the file. The tensors are views of the mapping and keep it alive; they must not
/// be written to. A tensor whose address is not a multiple of its element size is copied instead.
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

/// The content of a file.
struct Safetensors {
  TensorMap tensors;  ///< by name, on the CPU, contiguous; dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL
  Metadata metadata;
};

/// Position, dtype and shape of a tensor in a file.
struct TensorPlace {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< byte offsets, counted from the end of the header
};

/// The parsed header of a file.
struct SafetensorsHead {
  std::vector<TensorPlace> tensors;  ///< in file order, without gaps and overlaps
  Metadata metadata;
  int64_t bytes = 0;  ///< length of the length field and the header; the first tensor begins here
  /// Returns the total length of the tensors in bytes.
  int64_t data_bytes() const { return tensors.empty() ? 0 : static_cast<int64_t>(tensors.back().end); }
};

/// Parses the header of a file from its first bytes. `bytes` must hold the whole header; bytes after it are ignored.
/// \param source  the name of the file or message, for errors
/// \throws kCheckpoint as load_safetensors(), but not for byte ranges beyond the end of the file, whose length is not
/// known here.
SafetensorsHead read_safetensors_head(std::string_view bytes, const std::string& source);

/// Maps `file` and returns its tensors.
/// \throws kCheckpoint naming file and tensor, for a truncated file, a header that is too large or not JSON, an unknown
/// dtype, and byte ranges that overlap, leave gaps, exceed the file or disagree with dtype and shape; kIo when the file
/// cannot be opened.
Safetensors load_safetensors(const std::filesystem::path& file);
/// Reads the format from memory. `bytes` is [N] uint8. The tensors are views of `bytes` and keep it alive. A tensor
/// whose address is not a multiple of its element size is copied instead.
/// \param source  the name of the file or message, for errors
/// \throws kCheckpoint as load_safetensors().
Safetensors decode_safetensors(const at::Tensor& bytes, const std::string& source);

/// Writes `file` atomically, on all threads, and returns the number of bytes written. Tensors are made contiguous on
/// the CPU one at a time. They are sorted by element size (largest first), then by name; the data begins at a multiple
/// of 64 bytes. The same content gives the same bytes.
/// \throws kIo; kInternal for a dtype that the format does not have. The functions below throw kInternal for the same
/// reason.
int64_t save_safetensors(const std::filesystem::path& file, const TensorMap& tensors, const Metadata& metadata = {});

/// Receives the bytes of a file, piece by piece in their order.
using ByteSink = std::function<void(std::string_view piece)>;

/// Returns the sort key of a tensor among those of the same element size. Equal keys are sorted by name.
using SortKey = std::function<std::string(const std::string& name, const at::Tensor& tensor)>;

/// Returns the bytes of a file with these tensors, [N] uint8.
/// \param key  sorts tensors of equal element size; empty: by name. Larger elements come first, as in
/// save_safetensors()
at::Tensor encode_safetensors(const TensorMap& tensors, const Metadata& metadata = {}, const SortKey& key = {});
/// Works as encode_safetensors(), but stores each tensor with the dtype and sizes that `shapes` has under its name. The
/// tensor must have these sizes or broadcast to them. Tensors are converted while they are written.
/// \param shapes  meta tensors with the same names as `tensors` \throws kInternal when `tensors` lacks a name
at::Tensor encode_safetensors_as(const TensorMap& shapes, const TensorMap& tensors, const Metadata& metadata,
                                 const SortKey& key);
/// Passes the bytes of encode_safetensors_as() to `sink`, the header and then each tensor, without joining them in
/// memory. Tensors that have the wanted dtype and sizes and are contiguous are not copied.
/// \return the number of bytes that were passed
/// \throws as encode_safetensors_as(); anything that `sink` throws
int64_t pass_safetensors_as(const TensorMap& shapes, const TensorMap& tensors, const Metadata& metadata,
                            const SortKey& key, const ByteSink& sink);

/// Creates the tensor with this name when it is about to be written.
using TensorMaker = std::function<at::Tensor(const std::string& name)>;

/// Works as save_safetensors(), but calls `make` for one tensor at a time, so only one is in memory.
/// \param shapes  names, sizes and dtypes; meta tensors suffice
/// \throws kInternal when `make` returns another size or dtype.
int64_t stream_safetensors(const std::filesystem::path& file, const TensorMap& shapes, const TensorMaker& make,
                           const Metadata& metadata = {});

/// Returns the length in bytes of a file with these tensors, without writing it. Meta tensors suffice.
int64_t safetensors_size(const TensorMap& tensors, const Metadata& metadata = {}, const SortKey& key = {});

}  // namespace evenkeel
