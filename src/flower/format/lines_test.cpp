#include "flower/format/objects.h"
#include "flower/format/record_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "flower/format/npy.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

using testing::Memory, testing::OwnedArray;

std::vector<testing::OwnedArray> arrays_of_a_line() {
  return {{{"layer.0.A", "float32", {3, 5, 700}}, 1}, {{"layer.0.B", "float32", {3, 700, 5}}, 0},
          {{"layer.1.B", "float32", {3, 700, 5}}, 0}, {{"scalar", "int64", {}}, 2},
          {{"nothing", "uint16", {0, 4}}, 3},         {{"größe \"q\"", "uint16", {9}}, 4}};
}

Config every_kind() {
  return Config{{"whole", int64_t{-7}},
                {"large", uint64_t{1} << 63},
                {"rate", 0.5},
                {"two", 2.0},
                {"nan", std::nan("")},
                {"end", -HUGE_VAL},
                {"flag", true},
                {"text", std::string("größe\n\"")},
                {"raw", Bytes{std::string("\0\xff\n", 3)}},
                {"ints", std::vector<int64_t>{1, -2}},
                {"floats", std::vector<double>{0.5, 1}},
                {"flags", std::vector<bool>{true, false}},
                {"texts", std::vector<std::string>{"a", ""}},
                {"raws", std::vector<Bytes>{{"\x01"}, {""}}}};
}

Content content_of(const std::vector<testing::OwnedArray>& arrays) {
  Content content;
  content.add("evenkeel", every_kind());
  content.add("arrays", pack_arrays(testing::data_of(arrays), {.chunk_bytes = 4096}));
  content.add("metrics", Metrics{{"num-examples", int64_t{12}}, {"loss", 2.25}});
  return content;
}

/// The two ends of a connection, as descriptors. The user closes the second one.
struct Ends {
  Ends() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  std::array<int, 2> ends{};
};

void send_content(LineSocket& lines, OrderedJson line, const Content& content) {
  line["records"] = records_of(content);
  lines.send(std::move(line), images_of(content));
}

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Lines, RecordsWithEveryKindOfValueRoundTrip) {
  const Ends pair;
  LineSocket left(pair.ends[0]);
  const auto arrays = arrays_of_a_line();
  const auto content = content_of(arrays);
  const auto kinds = every_kind();
  std::jthread sender;
  LineSocket right(pair.ends[1]);
  sender = std::jthread([&] {
    refusal_of([&] {
      for (int number : {1, 2}) send_content(left, {{"number", number}, {"pad", std::string(300'000, 'x')}}, content);
      left.send({{"number", 3}});
    });
  });
  for (int number : {1, 2}) {
    const auto line = right.receive({});
    ASSERT_TRUE(line && line->memory);
    EXPECT_EQ(line->json.at("number"), number);
    const auto memory = std::make_shared<testing::Memory>();
    const auto read =
        read_records({line->json.at("records"), "here"}, line->memory.get(), testing::Memory::into(memory));
    for (const auto& [name, value] : kinds.entries()) {
      const auto* got = read.config("evenkeel").find(name);
      ASSERT_TRUE(got) << name;
      EXPECT_TRUE(*got == value || name == "nan") << name << ": " << kind_of(*got);
    }
    const auto decline = [](const Content&) { return ReceiveBuffers{.arrays = {}, .wanted = false}; };
    EXPECT_EQ(read_records({line->json.at("records"), "here"}, line->memory.get(), decline).heads().size(),
              arrays.size());
    EXPECT_TRUE(std::isnan(read.config("evenkeel").at<double>("nan")));
    EXPECT_EQ(read.metrics().at<double>("loss"), 2.25);
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(memory->heads[i], arrays[i].head);
      EXPECT_EQ(memory->arrays[i], arrays[i].bytes) << arrays[i].head.name;
    }
  }
  const auto bare = right.receive({});
  ASSERT_TRUE(bare);
  EXPECT_FALSE(bare->memory);
}

TEST(Lines, SentMemoryIsSealedAndUnsealedOrShortMemoryIsRefused) {
  const auto arrays = arrays_of_a_line();
  const auto memory = images_of(content_of(arrays));
  EXPECT_NE(::fcntl(memory->descriptor(), F_GET_SEALS) & F_SEAL_WRITE, 0);
  EXPECT_LT(::ftruncate(memory->descriptor(), 10), 0);
  EXPECT_NE(refusal_of([&] { SharedMemory::of(::dup(memory->descriptor()), memory->size() + 1); }), "accepted");
  EXPECT_EQ(refusal_of([&] { SharedMemory::of(::dup(memory->descriptor()), memory->size()); }), "accepted");
  const auto open = SharedMemory::make(4096);
  EXPECT_NE(refusal_of([&] { SharedMemory::of(::dup(open->descriptor()), 4096); }).find("sealed"), std::string::npos);
}

TEST(Lines, InvalidLinesAreRefusedAndAClosedConnectionGivesNone) {
  for (const std::string text : {"[1]\n", "no json\n", "{\"bytes\": 8}\n", "{\"bytes\": -1}\n"}) {
    const Ends pair;
    LineSocket right(pair.ends[1]);
    ASSERT_EQ(::write(pair.ends[0], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_NE(refusal_of([&] { right.receive({}); }), "accepted") << text;
    ::close(pair.ends[0]);
  }
  const Ends pair;
  LineSocket right(pair.ends[1]);
  ASSERT_EQ(::write(pair.ends[0], "{\"cut\": ", 8), 8);
  EXPECT_FALSE(right.receive([] { return true; })) << "whoever waits may be asked to stop";
  ::close(pair.ends[0]);
  EXPECT_FALSE(right.receive({}));
}

TEST(Lines, ContradictoryLinesAreRefused) {
  const auto refused = [](std::string_view records, std::string_view memory = {}) {
    const Json json = Json::parse(records);
    const auto nowhere = std::make_shared<testing::Memory>();
    const auto shared = memory.empty() ? nullptr : SharedMemory::make(memory.size());
    if (shared) std::memcpy(shared->bytes().data(), memory.data(), memory.size());
    return refusal_of([&] { read_records({json, "here"}, shared.get(), testing::Memory::into(nowhere)); });
  };
  EXPECT_EQ(refused("[]"), "accepted");
  for (const auto* records :
       {"{}", "[1]", R"([{"name": "a"}])", R"([{"name": "a", "config": 3}])",
        R"([{"name": "a", "config": {"x": null}}])", R"([{"name": "a", "config": {"x": [1, "b"]}}])",
        R"([{"name": "a", "config": {"x": {"base64": "?"}}}])", R"([{"name": "a", "config": {"x": {"float": "one"}}}])",
        R"([{"name": "a", "config": {"x": [[1]]}}])", R"([{"name": "a", "config": {}}, {"name": "a", "config": {}}])"})
    EXPECT_NE(refused(records), "accepted") << records;
  const auto array = [](int64_t offset, int64_t bytes, std::string_view dtype = "uint8",
                        std::string_view stype = kNumpy) {
    return concat(R"([{"name": "a", "arrays": [{"name": "x", "dtype": ")", dtype, R"(", "shape": [8], "stype": ")",
                  stype, R"(", "offset": )", offset, R"(, "bytes": )", bytes, "}]}]");
  };
  const auto image = npy_head({.name = "x", .dtype = "uint8", .shape = {8}}) + "12345678";
  const auto size = static_cast<int64_t>(image.size());
  EXPECT_EQ(refused(array(0, size), image), "accepted");
  for (const auto& records : {array(1, size), array(0, size + 1), array(0, size - 1), array(INT64_MAX, INT64_MAX),
                              array(0, size, "int8"), array(0, size, "object"), array(0, size, "uint8", "torch")})
    EXPECT_NE(refused(records, image), "accepted") << records;
}

TEST(Lines, AListenersSocketIsPrivateAndRemovedAtTheEnd) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "node.sock";
  {
    LineListener door(path);
    EXPECT_EQ(fs::status(path).permissions() & fs::perms::all, fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_NE(refusal_of([&] { LineListener second(path); }), "accepted");
    EXPECT_FALSE(door.accept([] { return true; }));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(Lines, AListenerReplacesASocketWithoutAListenerAndNoOtherFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "node.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  const int killed = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(killed, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(killed);
  EXPECT_EQ(refusal_of([&] { LineListener door(path); }), "accepted");
  write_file_atomic(path, "mine");
  EXPECT_NE(refusal_of([&] { LineListener door(path); }), "accepted");
  EXPECT_EQ(read_file(path), "mine");
}

}  // namespace
}  // namespace evenkeel::flower
