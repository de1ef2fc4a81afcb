#include "flower/format/objects.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/plain/json.h"
#include "flower/format/npy.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

using testing::OwnedArray;
using testing::refusal;

constexpr Limits kLimits{};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// Returns the same values as filled() of tests/flower/vectors.py.
testing::OwnedArray filled(ArrayHead head, size_t seed) {
  testing::OwnedArray array(std::move(head), 0);
  for (size_t i = 0; seed > 0 && i < array.bytes.size(); ++i)
    array.bytes[i] = static_cast<std::byte>((7 * i + seed) % 251);
  return array;
}

std::vector<testing::OwnedArray> arrays_of_the_vectors() {
  return {filled({"layer.0.A", "float32", {3, 5, 70}}, 1),
          filled({"zeros.a", "float32", {7, 100}}, 0),
          filled({"zeros.b", "float32", {7, 100}}, 0),
          filled({"bf16", "uint16", {5, 7}}, 2),
          filled({"counts", "int64", {2, 3}}, 3),
          filled({"scalar", "float64", {}}, 4),
          filled({"empty", "bool", {0, 4}}, 0),
          filled({"größe \"q\"\u2028", "float16", {9}}, 5)};
}

Content content_of_the_vectors(const std::vector<testing::OwnedArray>& arrays) {
  Content content;
  content.add("config", Config{{"round", int64_t{3}},
                               {"negative", -(int64_t{1} << 40)},
                               {"rate", 0.5},
                               {"flag", true},
                               {"text", "größe \"q\"\n\x7f"},
                               {"raw", Bytes{std::string("\x00\xff", 2)}},
                               {"ints", std::vector<int64_t>{1, -2}},
                               {"floats", std::vector<double>{0.5, -0.0}},
                               {"flags", std::vector<bool>{true, false}},
                               {"texts", std::vector<std::string>{"a", ""}},
                               {"raws", std::vector<Bytes>{{""}, {"\x01"}}},
                               {"none", std::vector<bool>{}}});
  content.add("metrics", Metrics{{"loss", 2.25}, {"count", int64_t{12}}, {"series", std::vector<double>{0.5, 1.5}}});
  content.add("arrays", pack_arrays(testing::data_of(arrays), {.chunk_bytes = 1024}));
  return content;
}

Json vectors() { return load_json(fs::path(EVENKEEL_SOURCE_DIR) / "tests/flower/vectors.json"); }

void expect_tree(const Tree& tree, const Json& wanted) {
  EXPECT_EQ(tree.id, wanted[0].get<std::string>());
  ASSERT_EQ(tree.children.size(), wanted[1].size());
  for (size_t i = 0; i < tree.children.size(); ++i) expect_tree(tree.children[i], wanted[1][i]);
}

TEST(Objects, EqualFlowersBytes) {
  const auto arrays = arrays_of_the_vectors();
  const Parcel parcel({}, content_of_the_vectors(arrays));
  const Json wanted = vectors();
  expect_tree(parcel.tree().children.at(0), wanted["tree"]);
  for (const auto& [id, hex] : wanted["objects"].items()) {
    const Object* object = parcel.find(id);
    ASSERT_TRUE(object) << from_hex(hex.get<std::string>());
    EXPECT_EQ(object->head, from_hex(hex.get<std::string>()));
  }
  for (const auto& id : wanted["ids"]) EXPECT_TRUE(parcel.find(id.get<std::string>())) << id;
}

TEST(Objects, AParcelHasEachObjectOfItsTreeOnce) {
  const auto arrays = arrays_of_the_vectors();
  const Parcel parcel({}, content_of_the_vectors(arrays));
  auto ids = check_tree(parcel.tree(), kLimits);
  std::vector<std::string> found;
  for (const auto* object : parcel.structure()) found.push_back(object->id);
  for (const auto& group : parcel.chunks())
    for (const auto* object : group) found.push_back(object->id);
  std::sort(ids.begin(), ids.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(ids, found);
  EXPECT_EQ(ids.size(), vectors()["ids"].size() + 1) << "and the message";
}

TEST(Objects, ObjectsOfPiecesEqualThoseOfOnePiece) {
  const testing::OwnedArray whole({"a", "float32", {3, 700}}, 7);
  const std::span<const std::byte> bytes = whole.bytes;
  const ArrayData pieces{.head = whole.head,
                         .pieces = {bytes.first(1), {}, bytes.subspan(1, 5000), bytes.subspan(5001)}};
  EXPECT_EQ(pack_arrays({pieces}, {.chunk_bytes = 1024}).packed->tree(),
            pack_arrays({whole.data()}, {.chunk_bytes = 1024}).packed->tree());
}

TEST(Objects, RoundTrip) {
  const std::string child(64, 'a'), another(64, 'b');
  std::string content = "Array " + child + "," + another + " 3";
  content += std::string("\0xyz", 4);
  const auto view = ObjectView::parse(content, kLimits);
  EXPECT_EQ(view.type, "Array");
  EXPECT_EQ(view.children, (std::vector<std::string_view>{child, another}));
  EXPECT_EQ(view.body, "xyz");
}

TEST(Objects, InvalidObjectsAreRefused) {
  const std::string child(64, 'a');
  const auto parse = [](std::string head, std::string body) {
    head.push_back('\0');
    return testing::refusal([&] { ObjectView::parse(head + body, kLimits); });
  };
  EXPECT_NE(parse("Array", "").find("is no object"), std::string::npos);
  EXPECT_NE(parse("Array  5", "abc").find("says it is of 5 bytes and is of 3"), std::string::npos);
  EXPECT_NE(parse("Array  -3", "abc").find("says it is of -3"), std::string::npos);
  EXPECT_NE(parse("Array  18446744073709551616", "abc").find("says it is of"), std::string::npos);
  EXPECT_NE(parse("Array ../../etc 3", "abc").find("names a child \"../../etc\""), std::string::npos);
  EXPECT_NE(parse("Array " + child + ", 3", "abc").find("ends in a comma"), std::string::npos);
  EXPECT_NE(testing::refusal([] { ObjectView::parse("", kLimits); }).find("is no object"), std::string::npos);
}

TEST(Objects, LimitsDepthAndSizeOfATree) {
  Tree deep{.id = std::string(64, '0')};
  for (int i = 0; i < 5; ++i) deep = {.id = std::string(64, '1'), .children = {deep}};
  EXPECT_NE(testing::refusal([&] { check_tree(deep, kLimits); }).find("more than 5 deep"), std::string::npos);
  Tree wide{.id = std::string(64, '0')};
  wide.children.resize(100, {.id = std::string(64, '1')});
  EXPECT_NE(testing::refusal([&] { check_tree(wide, {.objects = 100}); }).find("more than 100 objects"),
            std::string::npos);
  EXPECT_EQ(check_tree(wide, kLimits).size(), 2u);
}

TEST(Objects, ReferencesKeepTheirOrderAndInvalidOnesAreRefused) {
  const std::string id(64, 'c');
  const auto found = references_from_json("{\"z\": \"" + id + "\", \"a\": \"" + id + "\"}", kLimits);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, "z");
  for (const std::string body :
       {"[]", "{\"a\": 1}", "{\"a\": \"x\"}", "{\"a\": {\"b\": \"c\"}}", "{\"a\"", "", "3", "{\"a\": null}"})
    EXPECT_NE(testing::refusal([&] { references_from_json(body, kLimits); }), "no error") << body;
  EXPECT_NE(testing::refusal([&] {
              references_from_json("{\"a\": \"" + id + "\", \"a\": \"" + id + "\"}", kLimits);
            }).find("twice"),
            std::string::npos);
}

TEST(Objects, InvalidArrayHeadsAreRefused) {
  const auto read = [](const std::string& body) {
    return testing::refusal([&] { array_from_json(body, 2, kLimits); });
  };
  const std::string begin = R"({"dtype": "float32", "stype": "numpy.ndarray", )";
  EXPECT_EQ(read(begin + R"("shape": [2, 3], "arraychunk_ids": [0, 1, 1, 0]})"), "no error");
  EXPECT_NE(read(begin + R"("shape": [2, 3], "arraychunk_ids": [0, 2]})"), "no error");
  EXPECT_NE(read(begin + R"("shape": [2, -3], "arraychunk_ids": [0]})"), "no error");
  EXPECT_NE(read(begin + R"("shape": [2.5], "arraychunk_ids": [0]})"), "no error");
  EXPECT_NE(read(begin + R"("shape": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "arraychunk_ids": [0]})"), "no error");
  EXPECT_NE(read(begin + R"("shape": [2]})"), "no error");
}

TEST(Arrays, AreRefusedIfDataAndHeadDiffer) {
  testing::OwnedArray array({"a", "float32", {2, 3}}, 1);
  auto data = array.data();
  data.head.shape = {2, 4};
  EXPECT_NE(testing::refusal([&] { pack_arrays({data}); }).find("of 32 bytes comes with 24"), std::string::npos);
  data.head.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_NE(testing::refusal([&] { pack_arrays({data}); }).find("more than 2^62 bytes"), std::string::npos);
  data.head.dtype = "object";
  EXPECT_NE(testing::refusal([&] { pack_arrays({data}); }).find("dtype \"object\""), std::string::npos);
  EXPECT_NE(testing::refusal([&] {
              pack_arrays({array.data(), array.data()});
            }).find("two arrays are called"),
            std::string::npos);
}

TEST(Npy, HeadsOfAllVersionsAreRead) {
  const ArrayHead head{"a", "float32", {2, 3}};
  EXPECT_EQ(parse_npy_head(npy_head(head), head).bytes, npy_head(head).size());
  const std::string text = "{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}\n";
  const std::string image =
      std::string("\x93NUMPY\x02\x00", 8) + static_cast<char>(text.size()) + std::string(3, '\0') + text;
  EXPECT_TRUE(parse_npy_head(image, head).fortran_order);
  EXPECT_EQ(parse_npy_head(image, head).bytes, image.size());
}

TEST(Npy, HeadsThatDifferFromTheAnnouncedOnesAreRefused) {
  const ArrayHead head{"a", "float32", {2, 3}};
  const auto read = [&](const ArrayHead& other) {
    return testing::refusal([&] { parse_npy_head(npy_head(other), head); });
  };
  EXPECT_NE(read({"a", "int32", {2, 3}}).find("holds data of <i4, its head says float32"), std::string::npos);
  EXPECT_NE(read({"a", "float32", {3, 2}}).find("holds data of shape (3, 2), its head says (2, 3)"), std::string::npos);
  std::string big = npy_head(head);
  big.replace(big.find("<f4"), 3, ">f4");
  EXPECT_NE(testing::refusal([&] { parse_npy_head(big, head); }).find("holds data of >f4"), std::string::npos);
  std::string torn = npy_head(head);
  torn.replace(torn.find("'shape'"), 7, "'shapf'");
  EXPECT_NE(testing::refusal([&] { parse_npy_head(torn, head); }), "no error");
  EXPECT_NE(testing::refusal([&] { npy_head_bytes("not a file at all"); }), "no error");
}

TEST(Npy, FortranOrderIsConvertedToCOrderForAnyChunks) {
  const ArrayHead head{"a", "uint16", {2, 3, 4}};
  std::vector<uint16_t> fortran(24), wanted(24);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 4; ++k) {
        const auto value = static_cast<uint16_t>(100 * i + 10 * j + k);
        fortran[i + 2 * j + 6 * k] = value;
        wanted[12 * i + 4 * j + k] = value;
      }
  for (const size_t cut : {1, 3, 7, 48}) {
    std::vector<uint16_t> place(24);
    FortranOrder order(head, std::as_writable_bytes(std::span(place)));
    auto rest = std::as_bytes(std::span(fortran));
    while (!rest.empty()) {
      const auto part = rest.first(std::min(cut, rest.size()));
      order.put(part);
      rest = rest.subspan(part.size());
    }
    EXPECT_EQ(place, wanted) << "in pieces of " << cut;
  }
}

}  // namespace
}  // namespace evenkeel::flower
