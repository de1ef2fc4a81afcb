#include "base/format/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/mapped_files.h"
#include "base/plain/text.h"
#include "base/system/parallel.h"

namespace evenkeel {
namespace {

constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kAlignment = 64;

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array kDtypes{Dtype{"F64", at::kDouble},    Dtype{"F32", at::kFloat}, Dtype{"F16", at::kHalf},
                             Dtype{"BF16", at::kBFloat16}, Dtype{"I64", at::kLong},  Dtype{"I32", at::kInt},
                             Dtype{"I16", at::kShort},     Dtype{"I8", at::kChar},   Dtype{"U8", at::kByte},
                             Dtype{"BOOL", at::kBool}};

std::string_view name_of(at::ScalarType type, const std::string& tensor) {
  for (const auto& entry : kDtypes)
    if (entry.type == type) return entry.name;
  fail(kInternal, "safetensors: ", tensor, " has dtype ", at::toString(type), ", which the format does not hold");
}

/// Reads one header. Every error message begins with the file's name.
class HeaderReader {
 public:
  explicit HeaderReader(std::string file) : file_(std::move(file)) {}

  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    EK_CHECK(condition, kCheckpoint, file_, ": ", concat(parts...));
  }

  std::string_view header(std::string_view bytes) const {
    require(bytes.size() >= 8, "not safetensors: ", bytes.size(), " bytes, at least 8 needed");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    require(length <= kLargestHeader, "not safetensors: its header would be ", length, " bytes, allowed: up to ",
            kLargestHeader);
    require(length <= bytes.size() - 8, "truncated: the header needs ", length, " bytes, ", bytes.size() - 8,
            " are there");
    return bytes.substr(8, length);
  }

  static Metadata metadata(const JsonView& header) {
    Metadata result;
    if (const auto given = header.find("__metadata__"))
      for (const auto& entry : given->members()) result[entry.key()] = entry.string();
    return result;
  }

  /// Reads and checks one entry of the header.
  TensorPlace entry(const JsonView& given) const {
    const std::string name = shown(given.key());
    TensorPlace entry{given.key(), dtype(given.at("dtype")), given.at("shape").integers(0)};
    const auto range = given.at("data_offsets").integers(0);
    require(range.size() == 2 && range[0] <= range[1], "tensor ", name, " has data_offsets [", join(range),
            "], expected [begin, end]");
    require(size_of(entry.type, entry.shape) == range[1] - range[0], "tensor ", name, " of shape [", join(entry.shape),
            "] and dtype ", evenkeel::name_of(entry.type, name), " does not fill bytes ", range[0], " to ", range[1]);
    entry.begin = static_cast<uint64_t>(range[0]);
    entry.end = static_cast<uint64_t>(range[1]);
    return entry;
  }

  /// Sorts the entries by position. The format allows neither holes nor overlaps, so a file has no hidden content.
  void put_in_order(std::vector<TensorPlace>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const TensorPlace& x, const TensorPlace& y) {
      return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
    });
    uint64_t end = 0;
    for (const auto& entry : entries) {
      require(entry.begin >= end, "tensor ", shown(entry.name), " starts at byte ", entry.begin,
              ", inside the one before it");
      require(entry.begin == end, "bytes ", end, " to ", entry.begin, " before tensor ", shown(entry.name),
              " belong to no tensor");
      end = entry.end;
    }
  }

  void check_length(int64_t needed, int64_t available) const {
    require(needed <= available, "truncated: the tensors need ", needed, " bytes, ", available, " are there");
    require(needed == available, available - needed, " bytes follow the last tensor");
  }

 private:
  static at::ScalarType dtype(const JsonView& given) {
    for (const auto& entry : kDtypes)
      if (given.string() == entry.name) return entry.type;
    std::vector<std::string_view> known;
    for (const auto& entry : kDtypes) known.push_back(entry.name);
    given.refuse(" is ", shown(given.json()), ", allowed: ", join(known));
  }

  /// Returns the bytes of a tensor, or -1 if the number of bytes, or the product of the nonzero extents, overflows 64
  /// bits. LibTorch computes strides from that product even if a tensor is empty.
  static int64_t size_of(at::ScalarType type, const std::vector<int64_t>& shape) {
    auto strides = static_cast<int64_t>(at::elementSize(type));
    bool overflow = false, empty = false;
    for (const auto extent : shape) {
      overflow |= __builtin_mul_overflow(strides, std::max<int64_t>(extent, 1), &strides);
      empty |= extent == 0;
    }
    return overflow ? -1 : empty ? 0 : strides;
  }

  std::string file_;
};

/// \param bytes  the buffer that contains `data`; the view keeps it alive
at::Tensor view(const at::Tensor& bytes, std::string_view data, const TensorPlace& entry) {
  const auto options = at::TensorOptions().dtype(entry.type);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  auto* address = const_cast<char*>(data.data() + entry.begin);
  if (reinterpret_cast<uintptr_t>(address) % at::elementSize(entry.type) == 0)
    return at::from_blob(
        address, entry.shape, [bytes](void*) {}, options);
  auto aligned = at::empty(entry.shape, options);  // other programs may place a wide dtype at an odd offset
  std::memcpy(aligned.data_ptr(), address, entry.end - entry.begin);
  return aligned;
}

/// Returns the order in the file: widest dtype first, then by key and name. Every tensor starts at a multiple of its
/// element size.
std::vector<std::string> writing_order(const TensorMap& tensors, const SortKey& key) {
  std::vector<std::tuple<int64_t, std::string, std::string>> order;
  for (const auto& [name, tensor] : tensors)
    order.emplace_back(-tensor.element_size(), key ? key(name, tensor) : std::string(), name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (auto& [width, first, name] : order) names.push_back(std::move(name));
  return names;
}

/// Returns the length prefix and the JSON header, padded with spaces so that the data starts at a multiple of
/// kAlignment.
std::string file_head(const TensorMap& tensors, const Metadata& metadata, std::span<const std::string> order) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& name : order) {
    const auto& tensor = tensors.at(name);
    const uint64_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", name_of(tensor.scalar_type(), name)},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (text.size() + 8) % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

/// Returns the parsed header. Each thread caches its last header, because uploads of a round have equal headers and
/// parsing JSON is the slowest part of reading one.
std::shared_ptr<const SafetensorsHead> head_of(std::string_view bytes, const std::string& origin) {
  constexpr int64_t kMaxCachedHeader = 1 << 18;  // headers of checkpoints are larger and are read once
  struct CachedHeader {
    std::string beginning;
    std::shared_ptr<const SafetensorsHead> head;
  };
  thread_local CachedHeader last;
  if (last.head && bytes.starts_with(last.beginning)) return last.head;
  auto head = std::make_shared<const SafetensorsHead>(read_safetensors_head(bytes, origin));
  if (head->bytes <= kMaxCachedHeader) last = {std::string(bytes.substr(0, static_cast<size_t>(head->bytes))), head};
  return head;
}

at::Tensor tensor_of(const TensorMap& tensors, const std::string& name) {
  const auto tensor = tensors.find(name);
  EK_CHECK(tensor != tensors.end(), kInternal, "no tensor ", name, " to write as safetensors");
  return tensor->second.detach();
}

std::string_view content_of(const at::Tensor& contiguous) {
  return {static_cast<const char*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

/// Writes bytes at a place of a file on all threads, because one does not fill the page cache at the memory's rate.
void write_on_all_threads(AtomicFile& file, int64_t offset, std::string_view bytes) {
  constexpr int64_t kPiece = int64_t{1} << 22;
  for_each_range(static_cast<int64_t>(bytes.size()), kPiece, [&](int64_t begin, int64_t end) {
    file.write_at(offset + begin, bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  });
}

int64_t data_bytes(const TensorMap& tensors) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace

Safetensors load_safetensors(const std::filesystem::path& file) {
  const auto mapped = std::make_shared<MappedFile>(file);
  const auto span = mapped->bytes();
  const auto bytes = at::from_blob(
      const_cast<std::byte*>(span.data()), {static_cast<int64_t>(span.size())}, [mapped](void*) {}, at::kByte);
  return decode_safetensors(bytes, file.string());
}

SafetensorsHead read_safetensors_head(std::string_view bytes, const std::string& origin) {
  const HeaderReader reader(origin);
  const auto text = reader.header(bytes);
  const Json document =
      parse_json(text, concat(origin, " (header)"), kCheckpoint, {.bytes = kLargestHeader, .unique_keys = true});
  const JsonView header(document, concat(origin, " (header)"), kCheckpoint);
  SafetensorsHead head{{}, reader.metadata(header), static_cast<int64_t>(8 + text.size())};
  for (const auto& tensor : header.members())
    if (tensor.key() != "__metadata__") head.tensors.push_back(reader.entry(tensor));
  reader.put_in_order(head.tensors);
  return head;
}

Safetensors decode_safetensors(const at::Tensor& buffer, const std::string& origin) {
  const std::string_view bytes(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
  const auto head = head_of(bytes, origin);
  const auto data = bytes.substr(static_cast<size_t>(head->bytes));
  HeaderReader(origin).check_length(head->data_bytes(), static_cast<int64_t>(data.size()));
  Safetensors result{{}, head->metadata};
  for (const auto& entry : head->tensors) result.tensors.emplace(entry.name, view(buffer, data, entry));
  return result;
}

int64_t save_safetensors(const std::filesystem::path& file, const TensorMap& tensors, const Metadata& metadata) {
  return stream_safetensors(
      file, tensors, [&](const std::string& name) { return tensors.at(name); }, metadata);
}

int64_t stream_safetensors(const std::filesystem::path& file, const TensorMap& shapes, const TensorMaker& make,
                           const Metadata& metadata) {
  const auto order = writing_order(shapes, {});
  const std::string head = file_head(shapes, metadata, order);
  int64_t written = static_cast<int64_t>(head.size());
  AtomicFile out(file);
  out.write_at(0, head);
  for (const auto& name : order) {
    const auto tensor = make(name).detach().cpu().contiguous();
    const auto& shape = shapes.at(name);
    EK_CHECK(tensor.sizes() == shape.sizes() && tensor.scalar_type() == shape.scalar_type(), kInternal, file.string(),
             ": ", name, " was made as ", tensor.scalar_type(), " ", tensor.sizes(), ", the header says ",
             shape.scalar_type(), " ", shape.sizes());
    write_on_all_threads(out, written, content_of(tensor));
    written += static_cast<int64_t>(tensor.nbytes());
  }
  out.commit();
  return written;
}

at::Tensor encode_safetensors(const TensorMap& tensors, const Metadata& metadata, const SortKey& key) {
  return encode_safetensors_as(tensors, tensors, metadata, key);
}

at::Tensor encode_safetensors_as(const TensorMap& shapes, const TensorMap& tensors, const Metadata& metadata,
                                 const SortKey& key) {
  const auto order = writing_order(shapes, key);
  const std::string head = file_head(shapes, metadata, order);
  auto bytes = at::empty({static_cast<int64_t>(head.size()) + data_bytes(shapes)}, at::kByte);
  auto* end = static_cast<char*>(std::memcpy(bytes.mutable_data_ptr(), head.data(), head.size())) + head.size();
  for (const auto& name : order) {
    const auto& shape = shapes.at(name);
    at::from_blob(end, shape.sizes(), shape.scalar_type()).copy_(tensor_of(tensors, name));
    end += shape.nbytes();
  }
  return bytes;
}

int64_t pass_safetensors_as(const TensorMap& shapes, const TensorMap& tensors, const Metadata& metadata,
                            const SortKey& key, const ByteSink& sink) {
  const auto order = writing_order(shapes, key);
  const std::string head = file_head(shapes, metadata, order);
  sink(head);
  for (const auto& name : order) {
    const auto& shape = shapes.at(name);
    const auto tensor = tensor_of(tensors, name).to(at::kCPU, shape.scalar_type()).expand(shape.sizes()).contiguous();
    sink(content_of(tensor));
  }
  return static_cast<int64_t>(head.size()) + data_bytes(shapes);
}

int64_t safetensors_size(const TensorMap& tensors, const Metadata& metadata, const SortKey& key) {
  return static_cast<int64_t>(file_head(tensors, metadata, writing_order(tensors, key)).size()) + data_bytes(tensors);
}

}  // namespace evenkeel
