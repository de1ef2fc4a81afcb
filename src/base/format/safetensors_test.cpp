#include "base/format/safetensors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class SafetensorsTest : public ::testing::Test {
 protected:
  /// Returns the error message of loading a file with this header and this number of data bytes.
  std::string refusal(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    write_file_atomic(file_,
                      std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\0'));
    return refusal();
  }
  std::string refusal() {
    try {
      load_safetensors(file_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kCheckpoint);
      const std::string text = error.what();
      EXPECT_NE(text.find(file_.string()), std::string::npos) << text;
      return text.substr(text.find(file_.string()) + file_.string().size());
    }
    return "no error";
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path file_ = folder_ / "x.safetensors";
};

TensorMap many_dtypes() {
  return {{"a.u8", at::arange(7, at::kByte)},
          {"b.f32", at::arange(6, at::kFloat).view({2, 3})},
          {"c.bf16", at::arange(5, at::kBFloat16)},
          {"d.i64", at::arange(-3, 3, at::kLong).view({3, 1, 2})},
          {"e.bool", at::ones({3}, at::kBool)},
          {"f.f64", at::scalar_tensor(0.1, at::kDouble)},
          {"g.empty", at::empty({0, 4}, at::kFloat)},
          {"h.f16", at::ones({2, 2}, at::kHalf)},
          {"i.transposed", at::arange(12, at::kFloat).view({3, 4}).t()}};
}

TEST_F(SafetensorsTest, ARoundTripGivesEqualTensorsAndMetadata) {
  const auto tensors = many_dtypes();
  const Metadata metadata = {{"format", "pt"}, {"quote", "\"ü\n"}};
  const auto written = save_safetensors(file_, tensors, metadata);
  EXPECT_EQ(written, static_cast<int64_t>(fs::file_size(file_)));
  EXPECT_EQ(written, safetensors_size(tensors, metadata));
  const auto loaded = load_safetensors(file_);
  EXPECT_EQ(loaded.metadata, metadata);
  ASSERT_EQ(loaded.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(loaded.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(loaded.tensors.at(name), tensor)) << name;
  }
}

TEST_F(SafetensorsTest, TheSameContentGivesTheSameBytes) {
  save_safetensors(file_, many_dtypes());
  const auto first = sha256_file(file_);
  save_safetensors(file_, many_dtypes());
  EXPECT_EQ(sha256_file(file_), first);
}

TEST_F(SafetensorsTest, TensorsAreViewsThatOutliveTheFile) {
  save_safetensors(file_, {{"x", at::arange(1000, at::kFloat)}, {"y", at::ones({3}, at::kFloat)}});
  auto loaded = load_safetensors(file_);
  const auto* x = loaded.tensors.at("x").const_data_ptr<float>();
  EXPECT_EQ(loaded.tensors.at("y").const_data_ptr<float>(), x + 1000);
  const auto kept = loaded.tensors.at("y");
  loaded = {};
  fs::remove(file_);
  EXPECT_EQ(kept.sum().item<float>(), 3);
}

TEST_F(SafetensorsTest, MisalignedTensorsAreRead) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})";
  EXPECT_EQ(refusal(header, 11), "no error");
  EXPECT_EQ(load_safetensors(file_).tensors.at("b").sum().item<float>(), 0);
}

TEST_F(SafetensorsTest, RejectsTruncatedFiles) {
  save_safetensors(file_, {{"x", at::arange(1000, at::kFloat)}});
  const auto whole = read_file(file_);
  write_file_atomic(file_, std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_EQ(refusal(), ": truncated: the tensors need 4000 bytes, 3999 are there");
  write_file_atomic(file_, std::string_view(whole).substr(0, 20));
  EXPECT_EQ(refusal().substr(0, 29), ": truncated: the header needs");
  write_file_atomic(file_, "12345");
  EXPECT_EQ(refusal(), ": not safetensors: 5 bytes, at least 8 needed");
  write_file_atomic(file_, "<html>not a checkpoint</html>");
  EXPECT_EQ(refusal().substr(0, 37), ": not safetensors: its header would b");
}

TEST_F(SafetensorsTest, CachedHeadersAreCheckedAgainstTheActualLength) {
  const auto bytes = encode_safetensors({{"a", at::arange(6, at::kFloat).view({2, 3})}}, {{"k", "v"}});
  const auto other = encode_safetensors({{"a", at::arange(6, at::kFloat).view({3, 2}) + 1}}, {{"k", "w"}});
  ASSERT_EQ(bytes.numel(), other.numel());
  for (int i = 0; i < 2; ++i) {
    for (const auto& [each, rows] : {std::pair(bytes, 2), std::pair(bytes, 2), std::pair(other, 3)}) {
      const auto read = decode_safetensors(each, "x");
      EXPECT_EQ(read.tensors.at("a").size(0), rows);
      EXPECT_EQ(read.tensors.at("a")[0][0].item<float>(), rows - 2);
      EXPECT_EQ(read.metadata.at("k"), rows == 2 ? "v" : "w");
    }
    EXPECT_THROW(decode_safetensors(other.narrow(0, 0, other.numel() - 1), "x"), Error);
    EXPECT_THROW(decode_safetensors(at::cat({other, at::zeros({1}, at::kByte)}), "x"), Error);
    EXPECT_THROW(decode_safetensors(other.narrow(0, 0, 40), "x"), Error);
  }
}

TEST_F(SafetensorsTest, AMissingTensorIsAnInternalError) {
  const TensorMap shapes{{"a", at::empty({2}, at::kFloat)}, {"b", at::empty({3}, at::kHalf)}};
  for (const auto& tensors : {TensorMap{}, TensorMap{{"a", at::zeros({2})}}, TensorMap{{"b", at::zeros({3})}}}) try {
      encode_safetensors_as(shapes, tensors, {}, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kInternal) << error.what();
    }
}

TEST_F(SafetensorsTest, PassesTheBytesThatAreEncodedPieceByPiece) {
  const auto a = at::arange(6, at::kFloat).view({2, 3});
  const TensorMap shapes{{"bias", at::empty({4, 3}, at::kBFloat16)},  // converted, and broadcast from one row
                         {"half", at::empty({2, 3}, at::kHalf)},      // converted
                         {"same", at::empty({3, 2}, at::kFloat)}};    // not contiguous
  const TensorMap tensors{{"bias", a.slice(0, 1)}, {"half", a}, {"same", a.t()}};
  std::string passed;
  size_t pieces = 0;
  const int64_t bytes = pass_safetensors_as(shapes, tensors, {{"k", "v"}}, {}, [&](std::string_view piece) {
    passed += piece;
    ++pieces;
  });
  const auto encoded = encode_safetensors_as(shapes, tensors, {{"k", "v"}}, {});
  const auto* begin = static_cast<const char*>(encoded.const_data_ptr());
  EXPECT_EQ(passed, std::string(begin, begin + encoded.numel()));
  EXPECT_EQ(bytes, static_cast<int64_t>(passed.size()));
  EXPECT_EQ(pieces, 1 + shapes.size());  // the header, then each tensor
  const auto read = decode_safetensors(encoded, "x");
  EXPECT_TRUE(at::equal(read.tensors.at("bias").to(at::kFloat), a.slice(0, 1).expand({4, 3})));
}

TEST_F(SafetensorsTest, RejectsOverlapsHolesAndTrailingBytes) {
  const auto two = [](int first_begin, int first_end, int second_begin, int second_end) {
    return concat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)", first_begin, ",", first_end,
                  R"(]},"b":{"dtype":"U8","shape":[4],"data_offsets":[)", second_begin, ",", second_end, "]}}");
  };
  EXPECT_EQ(refusal(two(0, 4, 4, 8), 8), "no error");
  EXPECT_EQ(refusal(two(0, 4, 3, 7), 8), ": tensor b starts at byte 3, inside the one before it");
  EXPECT_EQ(refusal(two(0, 4, 5, 9), 9), ": bytes 4 to 5 before tensor b belong to no tensor");
  EXPECT_EQ(refusal(two(4, 8, 8, 12), 12), ": bytes 0 to 4 before tensor a belong to no tensor");
  EXPECT_EQ(refusal(two(0, 4, 4, 8), 9), ": 1 bytes follow the last tensor");
  EXPECT_EQ(refusal(two(0, 3, 3, 7), 7), ": tensor a of shape [4] and dtype U8 does not fill bytes 0 to 3");
  EXPECT_EQ(refusal(two(4, 0, 4, 8), 8), ": tensor a has data_offsets [4, 0], expected [begin, end]");
}

TEST_F(SafetensorsTest, RejectsInvalidHeaders) {
  EXPECT_EQ(refusal("{", 0), " (header): not valid JSON at byte 2 of 1");
  EXPECT_EQ(refusal("[]", 0), " (header) is [], expected an object");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32"}})", 0), " (header): a.shape is missing");
  EXPECT_EQ(refusal(R"({"a":{"shape":[]}})", 0), " (header): a.dtype is missing");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[]}})", 0), " (header): a.data_offsets is missing");
  EXPECT_EQ(refusal(R"({"a":3})", 0), " (header): a is 3, expected an object");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1).substr(0, 45),
            " (header): a.dtype is \"F8_E4M3\", allowed: F64");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
            " (header): a.shape[0] is -1, allowed: 0 or more");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0).substr(0, 19),
            ": tensor a of shape");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), " (header): __metadata__.a is 1, expected a string");
}

TEST_F(SafetensorsTest, RejectsOverflowingSizesEvenOfEmptyTensors) {
  const auto of_shape = [](std::string_view shape) {
    return concat(R"({"a":{"dtype":"U8","shape":[)", shape, R"(],"data_offsets":[0,0]}})");
  };
  EXPECT_EQ(
      refusal(of_shape("0,4611686018427387904,4611686018427387904"), 0),
      ": tensor a of shape [0, 4611686018427387904, 4611686018427387904] and dtype U8 does not fill bytes 0 to 0");
  EXPECT_EQ(refusal(of_shape("9223372036854775808"), 0),
            " (header): a.shape[0] is 9223372036854775808, allowed: 0 or more");
  EXPECT_EQ(refusal(of_shape("9223372036854775807,2"), 0).substr(0, 19), ": tensor a of shape");
  EXPECT_EQ(refusal(of_shape("0,5"), 0), "no error");
}

TEST_F(SafetensorsTest, RejectsDuplicateNamesAndNulBytes) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_EQ(refusal("{" + entry + "," + entry + "}", 2), " (header): the key \"a\" stands twice in one object");
  const std::string header = "{" + entry + "}" + std::string(1, '\0');
  EXPECT_EQ(refusal(header, 2), " (header): not valid JSON at byte 54 of 54: a NUL byte");
}

TEST_F(SafetensorsTest, ErrorsAboutDeepOrHugeValuesAreOneShortLine) {
  std::string deep(100'000, '[');
  EXPECT_EQ(refusal(R"({"a":{"dtype":)" + deep, 0),
            " (header): lists and objects lie more than 128 deep at byte 141 of 100014, allowed: up to 128");
  EXPECT_LE(
      refusal(R"({"a":{"dtype":")" + std::string(1'000'000, 'x') + R"(","shape":[],"data_offsets":[0,0]}})", 0).size(),
      400u);
  EXPECT_EQ(refusal(R"({"a\nb\u001b":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1),
            ": tensor a\\nb\\x1b of shape [2] and dtype U8 does not fill bytes 0 to 1");
}

TEST_F(SafetensorsTest, RejectsUnsupportedDtypesBeforeWriting) {
  EXPECT_THROW(save_safetensors(file_, {{"z", at::zeros({2}, at::kComplexFloat)}}), Error);
  EXPECT_FALSE(fs::exists(file_));
}

TEST(Safetensors, WritingTensorsOneByOneGivesTheSameFile) {
  const testing::TemporaryFolder folder;
  const TensorMap tensors{{"b", at::arange(6, at::kFloat).view({2, 3})},
                          {"a", at::ones({5}, at::kBFloat16)},
                          {"wide", at::full({1, 2}, 0.5, at::kDouble)}};
  TensorMap shapes;
  for (const auto& [name, tensor] : tensors)
    shapes[name] = at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
  std::vector<std::string> order;
  const auto make = [&](const std::string& name) { return order.push_back(name), tensors.at(name); };
  const auto written = stream_safetensors(folder.path() / "stream", shapes, make, {{"format", "pt"}});
  EXPECT_EQ(save_safetensors(folder.path() / "whole", tensors, {{"format", "pt"}}), written);
  EXPECT_EQ(read_file(folder.path() / "stream"), read_file(folder.path() / "whole"));
  EXPECT_EQ(order, (std::vector<std::string>{"wide", "b", "a"}));
  EXPECT_THROW(stream_safetensors(folder.path() / "x", shapes, [](const std::string&) { return at::ones({7}); }),
               Error);
  EXPECT_FALSE(fs::exists(folder.path() / "x"));
}

/// Sets the number of threads of LibTorch while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// A tensor is written in pieces of 4 MiB and converted in pieces of some thousand values.
TEST(Safetensors, ManyThreadsWriteTheBytesOfOne) {
  const testing::TemporaryFolder folder;
  const int64_t piece = int64_t{1} << 20;  // values of 4 bytes
  at::manual_seed(3);
  TensorMap tensors{{"one", at::rand({1})}, {"odd", at::rand({3, 70'001})}, {"turned", at::rand({257, 191}).t()}};
  for (const int64_t values : {piece - 1, piece, 2 * piece + 7}) tensors[std::to_string(values)] = at::rand({values});
  TensorMap shapes;
  for (const auto& [name, tensor] : tensors)
    shapes[name] = at::empty(tensor.sizes(), at::device(at::kMeta).dtype(at::kBFloat16));
  std::string file, passed;
  for (const int count : {1, 2, 5}) {
    const Threads threads(count);
    save_safetensors(folder.path() / "file", tensors);
    const auto bytes = encode_safetensors_as(shapes, tensors, {}, {});
    std::string pieces;
    pass_safetensors_as(shapes, tensors, {}, {}, [&](std::string_view next) { pieces += next; });
    const auto content = read_file(folder.path() / "file");
    if (count == 1) file = content, passed = pieces;
    EXPECT_TRUE(content == file) << count << " threads";
    EXPECT_TRUE(pieces == passed) << count << " threads";
    EXPECT_TRUE(pieces == std::string_view(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
}

}  // namespace
}  // namespace evenkeel
