#include "flower/format/record_lines.h"

#include <cmath>
#include <cstring>

#include "base/plain/base64.h"
#include "base/plain/text.h"
#include "flower/format/npy.h"
#include "flower/format/objects.h"

namespace evenkeel::flower {
namespace {

constexpr uint64_t kAlign = 64;

OrderedJson json_of(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}
OrderedJson json_of(const Bytes& value) { return {{"base64", to_base64(value.data)}}; }
template <typename T>
OrderedJson json_of(const T& value) {
  return value;
}
template <typename T>
OrderedJson json_of(const std::vector<T>& values) {
  OrderedJson list = OrderedJson::array();
  for (const auto& value : values) list.push_back(json_of(static_cast<const T&>(value)));
  return list;
}

OrderedJson json_of_items(const Items& items) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [name, value] : items.entries())
    object[name] = std::visit([](const auto& one) { return json_of(one); }, value);
  return object;
}

/// The bytes of an array to be sent: its head, then its data.
struct Image {
  std::string head;
  const ArrayData* data;
  uint64_t offset, bytes;
};

std::vector<Image> layout_images(const Content& content) {
  std::vector<Image> images;
  uint64_t end = 0;
  for (const auto& [name, record] : content.records()) {
    const auto* arrays = std::get_if<Arrays>(&record);
    if (!arrays || !arrays->packed) continue;
    for (const auto& array : arrays->packed->arrays()) {
      const auto head = array.head.stype == kNumpy ? npy_head(array.head) : std::string();
      const uint64_t bytes = head.size() + array.head.bytes();
      images.push_back({head, &array, end, bytes});
      end = (end + bytes + kAlign - 1) / kAlign * kAlign;
    }
  }
  return images;
}

std::shared_ptr<SharedMemory> memory_of(const std::vector<Image>& images) {
  if (images.empty()) return {};
  const auto memory = SharedMemory::make(images.back().offset + images.back().bytes);
  for (const auto& image : images) {
    auto* out = memory->bytes().data() + image.offset;
    std::memcpy(out, image.head.data(), image.head.size());
    out += image.head.size();
    for (const auto& piece : image.data->pieces) {
      if (!piece.empty()) std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }
  memory->seal();
  return memory;
}

OrderedJson json_of_arrays(const Arrays& arrays, const std::vector<Image>& images) {
  OrderedJson list = OrderedJson::array();
  if (!arrays.packed) return list;
  for (const auto& array : arrays.packed->arrays())
    for (const auto& image : images)
      if (image.data == &array)
        list.push_back({{"name", array.head.name},
                        {"dtype", array.head.dtype},
                        {"shape", array.head.shape},
                        {"stype", array.head.stype},
                        {"offset", image.offset},
                        {"bytes", image.bytes}});
  return list;
}

/// Returns nan, inf or -inf, which JSON cannot represent as numbers.
double special_of(const JsonView& view) {
  const auto& text = view.string();
  view.require(text == "nan" || text == "inf" || text == "-inf", " is ", shown(text), ", allowed: nan, inf, -inf");
  return text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL;
}

Value scalar_of(const JsonView& view) {
  const auto& json = view.json();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return json.get<uint64_t>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (const auto number = view.object().find("float")) return special_of(*number);
  const auto& text = view.at("base64").string();
  auto bytes = text.empty() ? std::optional(std::string()) : from_base64(text);
  view.require(bytes.has_value(), ".base64 is none");
  return Bytes{std::move(*bytes)};
}

/// Reads a list, whose values must all have the type of the first. \throws Error if they do not
Value list_of(const JsonView& view) {
  const auto items = view.items();
  if (items.empty()) return std::vector<double>();
  return std::visit(
      [&](const auto& first) -> Value {
        using T = std::decay_t<decltype(first)>;
        if constexpr (std::is_constructible_v<Value, std::vector<T>>) {
          std::vector<T> values;
          for (const auto& item : items) {
            auto value = scalar_of(item);
            const auto* typed = std::get_if<T>(&value);
            item.require(typed != nullptr, " is of another kind than the values before it");
            values.push_back(*typed);
          }
          return values;
        } else {
          view.refuse(" holds lists");
        }
      },
      scalar_of(items[0]));
}

template <typename Record>
Record items_of(const JsonView& view) {
  Record record;
  for (const auto& member : view.object().members())
    record.set(member.key(), member.json().is_array() ? list_of(member) : scalar_of(member));
  return record;
}

/// The head and the position of an array in received shared memory.
struct ArrivedImage {
  ArrayHead head;
  uint64_t offset, bytes;
};

ArrivedImage image_of(const JsonView& view, uint64_t end) {
  ArrivedImage image{.head = {.name = view.at("name").string(),
                              .dtype = view.at("dtype").string(),
                              .shape = view.at("shape").integers(0),
                              .stype = view.at("stype").string()},
                     .offset = static_cast<uint64_t>(view.at("offset").integer(0)),
                     .bytes = static_cast<uint64_t>(view.at("bytes").integer(0))};
  view.require(image.head.stype == kNumpy, ".stype is \"", shown(image.head.stype), "\", expected ", kNumpy);
  view.require(image.offset <= end && image.bytes <= end - image.offset, ": bytes ", image.offset, " to ",
               image.offset + image.bytes, " of an array are not in its memory of ", end);
  return image;
}

void copy_image(const ArrivedImage& image, std::span<const std::byte> memory, std::span<std::byte> place) {
  const auto bytes = memory.subspan(image.offset, image.bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto head = parse_npy_head(text.substr(0, std::min(text.size(), npy_head_bytes(text))), image.head);
  const auto data = bytes.subspan(head.bytes);
  EK_CHECK(data.size() == image.head.bytes() && data.size() == place.size(), kData, "array ", shown(image.head.name),
           " has ", data.size(), " bytes of data, expected ", place.size());
  if (head.fortran_order)
    FortranOrder(image.head, place).put(data);
  else if (!data.empty())
    std::memcpy(place.data(), data.data(), data.size());
}

}  // namespace

std::shared_ptr<SharedMemory> images_of(const Content& content) { return memory_of(layout_images(content)); }

OrderedJson records_of(const Content& content) {
  const auto images = layout_images(content);
  OrderedJson records = OrderedJson::array();
  for (const auto& [name, record] : content.records()) {
    OrderedJson json = {{"name", name}};
    if (const auto* config = std::get_if<Config>(&record)) json["config"] = json_of_items(*config);
    if (const auto* metrics = std::get_if<Metrics>(&record)) json["metrics"] = json_of_items(*metrics);
    if (const auto* arrays = std::get_if<Arrays>(&record)) json["arrays"] = json_of_arrays(*arrays, images);
    records.push_back(std::move(json));
  }
  return records;
}

Content read_records(const JsonView& records, const SharedMemory* memory, const BufferAllocator& place,
                     const Limits& limits) {
  const auto bytes = memory ? memory->bytes() : std::span<std::byte>();
  Content content;
  std::vector<ArrivedImage> images;
  for (const auto& view : records.items()) {
    const auto name = view.at("name").string();
    if (const auto config = view.find("config")) content.add(name, items_of<Config>(*config));
    if (const auto metrics = view.find("metrics")) content.add(name, items_of<Metrics>(*metrics));
    const auto arrays = view.find("arrays");
    view.require(arrays || content.has(name), " is none of config, metrics and arrays");
    if (!arrays) continue;
    Arrays heads;
    for (const auto& one : arrays->items()) {
      images.push_back(image_of(one, bytes.size()));
      heads.heads.push_back(images.back().head);
    }
    content.add(name, std::move(heads));
  }
  EK_CHECK(images.size() <= limits.arrays, kData, images.size(), " arrays in a line, allowed: up to ", limits.arrays);
  const auto places = place ? place(content) : ReceiveBuffers{};
  if (!places.wanted) return content;
  EK_CHECK(places.arrays.size() == images.size(), kInternal, places.arrays.size(), " places for ", images.size(),
           " arrays");
  for (size_t i = 0; i < images.size(); ++i) copy_image(images[i], bytes, places.arrays[i]);
  return content;
}

}  // namespace evenkeel::flower
