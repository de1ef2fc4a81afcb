#include "flower/format/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

struct Dtype {
  std::string_view name;
  std::string_view descr;
  uint64_t bytes;
};
constexpr std::array kDtypes = {
    Dtype{"float32", "<f4", 4},   Dtype{"float16", "<f2", 2},     Dtype{"float64", "<f8", 8}, Dtype{"int8", "|i1", 1},
    Dtype{"int16", "<i2", 2},     Dtype{"int32", "<i4", 4},       Dtype{"int64", "<i8", 8},   Dtype{"uint8", "|u1", 1},
    Dtype{"uint16", "<u2", 2},    Dtype{"uint32", "<u4", 4},      Dtype{"uint64", "<u8", 8},  Dtype{"bool", "|b1", 1},
    Dtype{"complex64", "<c8", 8}, Dtype{"complex128", "<c16", 16}};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

/// Returns a shape as Python text: "(2, 3)", "(2,)" or "()".
std::string shape_text(const std::vector<int64_t>& shape) {
  return concat("(", join(shape), shape.size() == 1 ? ",)" : ")");
}

/// A parser of the Python literals in a head.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  bool take(std::string_view word) {
    skip_space();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    EK_CHECK(take(word), kData, "a NumPy head says ", shown(text_, 40), " where ", word, " should stand");
  }
  std::string_view quoted() {
    skip_space();
    EK_CHECK(!text_.empty() && (text_[0] == '\'' || text_[0] == '"'), kData, "a NumPy head says ", shown(text_, 40),
             " where a text should stand");
    const size_t end = text_.find(text_[0], 1);
    EK_CHECK(end != std::string_view::npos, kData, "a NumPy head has a text without end");
    const auto found = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return found;
  }
  int64_t number() {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    EK_CHECK(error == std::errc() && value >= 0, kData, "a NumPy head says ", shown(text_, 40),
             " where a length should stand");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size())); }
  std::string_view text_;
};

struct Fields {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  int seen = 0;
};

std::vector<int64_t> shape_of(Words& words) {
  std::vector<int64_t> shape;
  words.expect("(");
  while (!words.take(")")) {
    EK_CHECK(shape.size() < 64, kData, "a NumPy head has more than 64 axes");
    shape.push_back(words.number());
    if (!words.take(",")) {
      words.expect(")");
      break;
    }
  }
  return shape;
}

Fields fields_of(std::string_view text) {
  Words words(text);
  Fields fields;
  words.expect("{");
  while (!words.take("}")) {
    const auto key = words.quoted();
    words.expect(":");
    ++fields.seen;
    if (key == "descr")
      fields.descr = words.quoted();
    else if (key == "shape")
      fields.shape = shape_of(words);
    else if (key == "fortran_order" && words.take("True"))
      fields.fortran_order = true;
    else if (key == "fortran_order")
      words.expect("False");
    else
      fail(kData, "a NumPy head has a key \"", shown(key), "\"");
    if (!words.take(",")) {
      words.expect("}");
      break;
    }
  }
  EK_CHECK(fields.seen == 3 && words.at_end(), kData, "a NumPy head is not of descr, fortran_order and shape");
  return fields;
}

/// Returns the number of bytes before the head's text, which depends on the version.
size_t preamble_of(std::string_view image) {
  EK_CHECK(image.size() >= 10 && image.starts_with(kMagic), kData, "data of ", image.size(),
           " bytes does not begin as a NumPy file");
  const auto version = static_cast<unsigned char>(image[6]);
  EK_CHECK(version >= 1 && version <= 3, kData, "a NumPy file of version ", int{version}, ", known: 1 to 3");
  return version == 1 ? 10 : 12;
}

}  // namespace

std::optional<uint64_t> bytes_of_dtype(std::string_view dtype) {
  const Dtype* found = find_dtype(dtype);
  return found ? std::optional(found->bytes) : std::nullopt;
}

uint64_t ArrayHead::bytes() const {
  const auto element = bytes_of_dtype(dtype);
  EK_CHECK(element, kData, "array \"", shown(name), "\" is of dtype \"", shown(dtype),
           "\", allowed: NumPy's numbers and bool");
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t bytes = *element;
  for (const int64_t axis : shape) {
    EK_CHECK(axis >= 0, kData, "array \"", shown(name), "\" has an axis of ", axis);
    const auto length = static_cast<uint64_t>(axis);
    EK_CHECK(length == 0 || bytes <= kMost / length, kData, "array \"", shown(name), "\" is of more than 2^62 bytes");
    bytes *= length;
  }
  return bytes;
}

std::string npy_head(const ArrayHead& head) {
  head.bytes();  // checks the head
  std::string text = concat("{'descr': '", find_dtype(head.dtype)->descr,
                            "', 'fortran_order': False, 'shape': ", shape_text(head.shape), ", }");
  const size_t before = kMagic.size() + 4;
  // NumPy pads the head so that the first axis can grow in place.
  if (!head.shape.empty()) text.append(21 - std::to_string(head.shape.front()).size(), ' ');
  text.append(kAlignment - (before + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return out + text;
}

size_t npy_head_bytes(std::string_view image) {
  const size_t preamble = preamble_of(image);
  EK_CHECK(image.size() >= preamble, kData, "a NumPy file of ", image.size(), " bytes");
  size_t length = 0;
  for (size_t i = preamble; i-- > 8;) length = length << 8 | static_cast<unsigned char>(image[i]);
  EK_CHECK(length <= 65'536, kData, "a NumPy head of ", length, " bytes");
  return preamble + length;
}

NpyHead parse_npy_head(std::string_view image, const ArrayHead& expected) {
  const size_t bytes = npy_head_bytes(image);
  EK_CHECK(bytes <= image.size(), kData, "array \"", shown(expected.name), "\" ends within its NumPy head");
  const size_t preamble = preamble_of(image);
  const Fields fields = fields_of(image.substr(preamble, bytes - preamble));
  const Dtype* dtype = find_dtype(expected.dtype);
  EK_CHECK(dtype && fields.descr == dtype->descr, kData, "array \"", shown(expected.name), "\" holds data of ",
           shown(fields.descr), ", its head says ", shown(expected.dtype));
  EK_CHECK(fields.shape == expected.shape, kData, "array \"", shown(expected.name), "\" holds data of shape ",
           shown(shape_text(fields.shape)), ", its head says ", shown(shape_text(expected.shape)));
  return {.bytes = bytes, .fortran_order = fields.fortran_order && fields.shape.size() > 1};
}

FortranOrder::FortranOrder(const ArrayHead& head, std::span<std::byte> place)
    : place_(place),
      element_(bytes_of_dtype(head.dtype).value()),
      shape_(head.shape.begin(), head.shape.end()),
      strides_(shape_.size()),
      index_(shape_.size()) {
  size_t stride = element_;
  for (size_t axis = shape_.size(); axis-- > 0; stride *= shape_[axis]) strides_[axis] = stride;
}

void FortranOrder::put(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (part_.empty() && data.size() >= element_) {
      put_element(data.data());
      data = data.subspan(element_);
      continue;
    }
    const size_t taken = std::min(element_ - part_.size(), data.size());
    part_.insert(part_.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(taken));
    data = data.subspan(taken);
    if (part_.size() == element_) {
      put_element(part_.data());
      part_.clear();
    }
  }
}

void FortranOrder::put_element(const std::byte* element) {
  size_t at = 0;
  for (size_t axis = 0; axis < index_.size(); ++axis) at += index_[axis] * strides_[axis];
  std::memcpy(place_.data() + at, element, element_);
  for (size_t axis = 0; axis < index_.size() && ++index_[axis] == shape_[axis]; ++axis) index_[axis] = 0;
}

}  // namespace evenkeel::flower
