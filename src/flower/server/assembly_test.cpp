#include "flower/server/assembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

using testing::Memory, testing::OwnedArray;
using testing::refusal;

/// Builds valid and invalid objects and their tree.
struct Forge {
  Tree add(const std::string& type, const std::vector<Tree>& children, const std::string& body) {
    std::vector<std::string> ids;
    for (const auto& child : children) ids.push_back(child.id);
    std::string content = concat(type, " ", join(ids, ","), " ", body.size());
    content.push_back('\0');
    content += body;
    const std::string id = object_id(content);
    objects[id] = content;
    return {.id = id, .children = children};
  }
  Tree array(const std::string& dtype, const std::string& shape, const std::vector<std::string>& chunks,
             const std::string& stype = "numpy.ndarray") {
    std::vector<Tree> children;
    std::vector<size_t> order;
    for (const auto& chunk : chunks) {
      order.push_back(children.size());
      children.push_back(add("ArrayChunk", {}, chunk));
    }
    return add("Array", children,
               concat(R"({"dtype": ")", dtype, R"(", "shape": )", shape, R"(, "stype": ")", stype,
                      R"(", "arraychunk_ids": [)", join(order), "]}"));
  }
  Tree message(const Tree& array) {
    const Tree arrays = add("ArrayRecord", {array}, references_to_json({{"a", array.id}}));
    const Tree dict = add("RecordDict", {arrays}, references_to_json({{"arrays", arrays.id}}));
    return add("Message", {dict}, encode_message({}, {}));
  }
  /// Returns the error of taking all objects in the order of ids.
  std::string outcome(const Tree& tree, const Limits& limits = {}, uint64_t spool = 1 << 20) {
    return testing::refusal([&] {
      const testing::TemporaryFolder folder;
      Assembly assembly(tree, limits, testing::Memory::into(memory), folder.path(), spool);
      for (const auto& id : assembly.ids()) assembly.take(id, objects.at(id));
      EK_CHECK(assembly.complete(), kData, "not complete");
    });
  }

  std::map<std::string, std::string> objects;
  std::shared_ptr<testing::Memory> memory = std::make_shared<testing::Memory>();
};

std::string image_of(const ArrayHead& head, size_t bytes) { return npy_head(head) + std::string(bytes, 'x'); }

const ArrayHead kHead{"a", "float32", {2, 3}};

TEST(Assembly, AcceptsObjectsInAnyOrder) {
  std::vector<testing::OwnedArray> arrays;
  for (uint64_t i = 0; i < 6; ++i)
    arrays.push_back({{concat("a", i), "float32", {7, 250 + static_cast<int64_t>(i % 2)}}, i % 3});
  Content content;
  content.add("arrays", pack_arrays(testing::data_of(arrays), {.chunk_bytes = 1024}));
  content.add("config", Config{{"rank", int64_t{4}}});
  const Parcel parcel({}, content);
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const testing::TemporaryFolder folder;
    const auto memory = std::make_shared<testing::Memory>();
    Assembly assembly(parcel.tree(), {}, testing::Memory::into(memory), folder.path(), 1 << 20);
    auto ids = assembly.ids();
    std::shuffle(ids.begin(), ids.end(), random);
    for (const auto& id : ids) {
      EXPECT_FALSE(assembly.complete());
      std::string bytes = parcel.find(id)->head;
      for (const auto piece : parcel.find(id)->pieces)
        bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      assembly.take(id, bytes);
      assembly.take(id, bytes);  // a second call has no effect
    }
    ASSERT_TRUE(assembly.complete());
    EXPECT_EQ(assembly.content().config().at<int64_t>("rank"), 4);
    for (size_t i = 0; i < arrays.size(); ++i) EXPECT_EQ(memory->arrays[i], arrays[i].bytes);
    EXPECT_TRUE(fs::is_empty(folder.path())) << "what is spooled has no name";
  }
}

TEST(Assembly, IsWholeWithoutTheDataOfArraysThatAreNotWanted) {
  const std::vector<testing::OwnedArray> arrays = {{{"a", "float32", {7, 250}}, 1}};
  Content content;
  content.add("arrays", pack_arrays(testing::data_of(arrays), {.chunk_bytes = 1024}));
  content.add("config", Config{{"rank", int64_t{4}}});
  const Parcel parcel({}, content);
  const testing::TemporaryFolder folder;
  const auto decline = [](const Content&) { return ReceiveBuffers{.arrays = {}, .wanted = false}; };
  Assembly assembly(parcel.tree(), {}, decline, folder.path(), 1 << 20);
  for (auto missing = assembly.missing_structure(); !missing.empty(); missing = assembly.missing_structure())
    for (const auto& id : missing) assembly.take(id, parcel.find(id)->head);
  EXPECT_TRUE(assembly.complete());
  EXPECT_EQ(assembly.arrays(), 0u);
  EXPECT_EQ(assembly.content().config().at<int64_t>("rank"), 4);
}

TEST(Assembly, RefusesDataThatContradictsItsHead) {
  Forge forge;
  const auto outcome = [&](const Tree& array) { return forge.outcome(forge.message(array)); };
  EXPECT_EQ(outcome(forge.array("float32", "[2, 3]", {image_of(kHead, 24)})), "no error");
  EXPECT_NE(
      outcome(forge.array("float32", "[3, 2]", {image_of(kHead, 24)})).find("of shape (2, 3), its head says (3, 2)"),
      std::string::npos);
  EXPECT_NE(outcome(forge.array("int32", "[2, 3]", {image_of(kHead, 24)})).find("data of <f4, its head says int32"),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {image_of(kHead, 20)})).find("holds 20 of its 24 bytes"),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {image_of(kHead, 28)})).find("more than its 24 bytes"),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {image_of(kHead, 24), "y"})).find("more than its 24 bytes"),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {"short"})).find("holds 0 of its 24 bytes"), std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {std::string(200, 'z')})).find("does not begin as a NumPy file"),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[2, 3]", {image_of(kHead, 24)}, "pickle")).find("serialised as \"pickle\""),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("object", "[2, 3]", {image_of(kHead, 24)})).find("dtype \"object\""),
            std::string::npos);
  EXPECT_NE(outcome(forge.array("float32", "[4611686018427387904]", {image_of(kHead, 24)})).find("2^62"),
            std::string::npos);
}

TEST(Assembly, RefusesADamagedObjectAndAcceptsItUndamaged) {
  Forge forge;
  const Tree tree = forge.message(forge.array("float32", "[2, 3]", {image_of(kHead, 24)}));
  const testing::TemporaryFolder folder;
  Assembly assembly(tree, {}, testing::Memory::into(forge.memory), folder.path(), 1 << 20);
  std::string damaged = forge.objects.at(tree.id);
  damaged.back() ^= 1;
  EXPECT_NE(testing::refusal([&] { assembly.take(tree.id, damaged); }).find("is damaged"), std::string::npos);
  EXPECT_FALSE(assembly.failed()) << "it may come again";
  for (const auto& id : assembly.ids()) assembly.take(id, forge.objects.at(id));
  EXPECT_TRUE(assembly.complete());
  const std::string stranger(64, 'f');
  EXPECT_NE(testing::refusal([&] { assembly.take(stranger, "x"); }).find("is not of this message"), std::string::npos);
}

TEST(Assembly, RefusesInvalidStructures) {
  Forge forge;
  const Tree array = forge.array("float32", "[2, 3]", {image_of(kHead, 24)});
  const Tree arrays = forge.add("ArrayRecord", {array}, references_to_json({{"a", array.id}}));
  const Tree dict = forge.add("RecordDict", {arrays}, references_to_json({{"arrays", arrays.id}}));
  EXPECT_NE(forge.outcome(dict).find("is a RecordDict, expected a Message"), std::string::npos);
  EXPECT_NE(forge.outcome(forge.add("Message", {arrays}, encode_message({}, {}))).find("expected a RecordDict"),
            std::string::npos);
  EXPECT_NE(forge.outcome(forge.add("Message", {}, encode_message({}, {}))).find("has 0 contents"), std::string::npos);
  EXPECT_NE(forge.outcome(array.children[0]).find("ArrayChunk stands where a record should"), std::string::npos);
  const Tree odd = forge.add("RecordDict", {array}, references_to_json({{"x", array.id}}));
  EXPECT_NE(forge.outcome(forge.add("Message", {odd}, encode_message({}, {}))).find("holds a Array"),
            std::string::npos);
  const Tree other = forge.add("RecordDict", {arrays}, references_to_json({{"x", std::string(64, 'e')}}));
  EXPECT_NE(forge.outcome(forge.add("Message", {other}, encode_message({}, {}))).find("no child of its RecordDict"),
            std::string::npos);
  Tree hidden = forge.add("Message", {dict}, encode_message({}, {}));
  hidden.children.push_back(forge.add("ArrayChunk", {}, "of no use"));
  EXPECT_NE(forge.outcome(hidden).find("announces 6 objects and has use for 5"), std::string::npos);
  Tree poorer = forge.message(array);
  poorer.children[0].children.clear();
  EXPECT_NE(forge.outcome(poorer).find("that was not announced"), std::string::npos);
}

TEST(Assembly, LimitsAMessage) {
  Forge forge;
  const Tree tree = forge.message(forge.array("float32", "[2, 3]", {image_of(kHead, 24)}));
  EXPECT_EQ(forge.outcome(tree), "no error");
  EXPECT_NE(forge.outcome(tree, {.data = 23}).find("arrays of more than 23 bytes"), std::string::npos);
  EXPECT_NE(forge.outcome(tree, {.structure = 100}).find("more than 100 bytes"), std::string::npos);
  EXPECT_NE(forge.outcome(tree, {.chunk = 100}).find("a chunk of 152 bytes"), std::string::npos);
  EXPECT_NE(forge.outcome(tree, {.arrays = 0}).find("more than 0 arrays"), std::string::npos);
  EXPECT_NE(forge.outcome(tree, {.axes = 1}).find("2 axes"), std::string::npos);
  EXPECT_NE(forge.outcome(tree, {.objects = 4}).find("more than 4 objects"), std::string::npos);
}

TEST(Assembly, LimitsDataThatArrivesBeforeTheStructure) {
  Forge forge;
  const Tree tree = forge.message(forge.array("float32", "[2, 3]", {image_of(kHead, 24)}));
  const testing::TemporaryFolder folder;
  Assembly assembly(tree, {}, testing::Memory::into(forge.memory), folder.path(), 100);
  const std::string& chunk = tree.children[0].children[0].children[0].children[0].id;
  EXPECT_NE(
      testing::refusal([&] { assembly.take(chunk, forge.objects.at(chunk)); }).find("more than 100 bytes came before"),
      std::string::npos);
  EXPECT_TRUE(assembly.failed());
}

TEST(Assembly, AFailureHasOnlyACodeAndAReason) {
  const Parcel parcel({}, Failure{ErrorCode::kCrashed, "why"});
  const testing::TemporaryFolder folder;
  Assembly assembly(parcel.tree(), {}, {}, folder.path(), 0);
  assembly.take(parcel.tree().id, parcel.find(parcel.tree().id)->head);
  ASSERT_TRUE(assembly.complete());
  EXPECT_EQ(assembly.failure(), (Failure{ErrorCode::kCrashed, "why"}));
}

}  // namespace
}  // namespace evenkeel::flower
