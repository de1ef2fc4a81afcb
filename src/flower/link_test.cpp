#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/plain/files.h"
#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "flower/http/http_server.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

using testing::id_of, testing::in, testing::Keys, testing::Memory, testing::node_options, testing::OwnedArray;

using Kind = Arrival::Kind;

std::vector<testing::OwnedArray> some_arrays() {
  return {{{"layer.0.A", "float32", {3, 5, 700}}, 1}, {{"layer.0.B", "float32", {3, 700, 5}}, 0},
          {{"layer.1.B", "float32", {3, 700, 5}}, 0}, {{"counts", "int64", {}}, 2},
          {{"nothing", "uint16", {0, 4}}, 3},         {{"größe \"q\"", "uint16", {9}}, 4}};
}

Content some_content(const std::vector<testing::OwnedArray>& arrays, size_t chunk_bytes = 4096) {
  Content content;
  content.add("config", Config{{"server-round", int64_t{3}}, {"names", std::vector<std::string>{"a", "b"}}});
  content.add("arrays", pack_arrays(testing::data_of(arrays), {.chunk_bytes = chunk_bytes}));
  return content;
}

void expect_same(const testing::Memory& memory, const std::vector<testing::OwnedArray>& arrays) {
  ASSERT_EQ(memory.arrays.size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(memory.heads[i], arrays[i].head);
    EXPECT_EQ(memory.arrays[i], arrays[i].bytes) << arrays[i].head.name;
  }
}

TEST(Link, AMessageAndItsReplyArriveUnchanged) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  const auto arrays = some_arrays();
  const auto back = std::make_shared<testing::Memory>(), there = std::make_shared<testing::Memory>();
  const auto sent =
      coordinator.send(link.id(), some_content(arrays), {.group = "3", .place = testing::Memory::into(back)});

  const auto instruction = testing::next_instruction(link);
  EXPECT_EQ(instruction.metadata.type, "train");
  EXPECT_EQ(instruction.metadata.group, "3");
  const Content content = link.receive(instruction, testing::Memory::into(there));
  EXPECT_EQ(content.config().at<int64_t>("server-round"), 3);
  expect_same(*there, arrays);

  auto changed = arrays;
  for (auto& array : changed)
    for (auto& byte : array.bytes) byte ^= std::byte{0x5a};
  Content reply;
  reply.add("metrics", Metrics{{"num-examples", int64_t{12}}, {"loss", 2.25}});
  reply.add("arrays", pack_arrays(testing::data_of(changed), {.chunk_bytes = 1024}));
  link.reply(instruction, reply);

  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kReply) << arrival->reason;
  EXPECT_EQ(arrival->message_id, sent);
  EXPECT_EQ(arrival->content.metrics().at<double>("loss"), 2.25);
  expect_same(*back, changed);
  EXPECT_TRUE(link.collected());
  link.leave();
  EXPECT_FALSE(testing::is_online(coordinator, arrival->node));
}

TEST(Link, AnErrorReplyArrivesWithItsCodeAndReason) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  link.refuse(instruction, ErrorCode::kPrecondition, "K is 3, agreed: 2");
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kError);
  EXPECT_EQ(arrival->code, ErrorCode::kPrecondition);
  EXPECT_EQ(arrival->reason, "K is 3, agreed: 2");
}

TEST(Link, ErrorsOfTheNodesAllocatorAreReportedToTheServer) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), some_content(some_arrays()), {});
  const auto instruction = testing::next_instruction(link);
  const auto refuse = [](const Content&) -> ReceiveBuffers { fail(kData, "rank is 5, agreed: 4"); };
  EXPECT_EQ(testing::refusal([&] { link.receive(instruction, refuse); }), "[data] rank is 5, agreed: 4");
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kError);
  EXPECT_EQ(arrival->reason, "[data] rank is 5, agreed: 4");
}

TEST(Link, ErrorsOfTheServersAllocatorAreReportedToTheNode) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  const auto refuse = [](const Content&) -> ReceiveBuffers { fail(kShape, "A is 5 high"); };
  coordinator.send(link.id(), Content(), {.place = refuse});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  const auto arrays = some_arrays();
  EXPECT_NE(testing::refusal([&] { link.reply(instruction, some_content(arrays)); }).find("A is 5 high"),
            std::string::npos);
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kRefused);
  EXPECT_EQ(arrival->reason, "[shape] A is 5 high");
}

TEST(Link, ArraysForManyNodesAreHashedAndStoredOnce) {
  const testing::Keys keys(3);
  Coordinator coordinator(testing::options_for(keys));
  const auto arrays = some_arrays();
  const auto pack = pack_arrays(testing::data_of(arrays));
  for (int i = 0; i < 3; ++i) {
    NodeLink link(testing::node_options(coordinator, keys, i));
    link.join();
    Content content;
    content.add("config", Config{{"client", int64_t{i}}});
    content.add("arrays", pack);
    coordinator.send(link.id(), content, {});
    EXPECT_EQ(pack.packed.use_count(), 3) << "in the pack, the content and the parcel";
    const auto memory = std::make_shared<testing::Memory>();
    const auto instruction = testing::next_instruction(link);
    EXPECT_EQ(link.receive(instruction, testing::Memory::into(memory)).config().at<int64_t>("client"), i);
    expect_same(*memory, arrays);
  }
  EXPECT_EQ(pack.packed.use_count(), 1) << "confirmed messages borrow nothing";
}

TEST(Link, ASecondNodeWithTheSameKeyIsRefusedWhileTheFirstIsOnline) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink first(testing::node_options(coordinator, keys, 0));
  first.join();
  const testing::TemporaryFolder machine;  // another one, with a copy of the key
  auto options = testing::node_options(coordinator, keys, 0);
  options.key_file = machine.path() / "copy.pem";
  options.folder = machine.path() / "memory";
  fs::copy_file(keys.file(0), options.key_file);
  NodeLink second(options);
  EXPECT_NE(testing::refusal([&] { second.join(); }).find("online already"), std::string::npos);
  const auto nodes = coordinator.nodes();
  EXPECT_NE(nodes.at(0).last_refusal.find("another process has its key"), std::string::npos) << nodes[0].last_refusal;
}

TEST(Link, ASecondProcessOfThisMachineWithTheSameKeyIsRefusedAtOnce) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink first(testing::node_options(coordinator, keys, 0));
  first.join();
  NodeLink second(testing::node_options(coordinator, keys, 0));
  EXPECT_NE(testing::refusal([&] { second.join(); }).find("node-0.memory"), std::string::npos);
  coordinator.send(first.id(), Content(), {});
  testing::next_instruction(first);
}

TEST(Link, ANodeWritesIntoItsFolderAloneAndKnowsItAgainWithANewCopyOfItsKey) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  const testing::TemporaryFolder machine;
  auto options = testing::node_options(coordinator, keys, 0);
  options.folder = machine.path() / "state";
  for (const auto* name : {"first", "second"}) {  // as systemd copies a credential for each start of a service
    options.key_file = machine.path() / name / "key.pem";
    make_folders(options.key_file.parent_path());
    fs::copy_file(keys.file(0), options.key_file);
    NodeLink link(options);
    link.join();
    EXPECT_TRUE(path_exists(options.folder / "link.json"));
    EXPECT_EQ(entries_of(options.key_file.parent_path()).size(), 1u);
    coordinator.send(link.id(), Content(), {});
    testing::next_instruction(link);
  }  // ends without signing off; the next one does not wait until this one counts as offline
}

TEST(Link, ACopyOfTheStateOfALivingNodeDoesNotSignItOff) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink first(testing::node_options(coordinator, keys, 0));
  first.join();
  const testing::TemporaryFolder machine;
  auto options = testing::node_options(coordinator, keys, 0);
  options.key_file = machine.path() / "copy.pem";
  fs::copy_file(keys.file(0), options.key_file);
  options.folder = machine.path() / "memory";
  make_folders(options.folder);
  fs::copy_file(keys.folder_of(0) / "link.json", options.folder / "link.json");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  options.stop = [end] { return std::chrono::steady_clock::now() > end; };
  NodeLink second(options);
  EXPECT_THROW(second.join(), Stopped) << "it waits for a while, because the other may have ended";
  coordinator.send(first.id(), Content(), {});
  testing::next_instruction(first);
}

TEST(Link, AProcessIsRefusedWhenAnotherOneHasTakenItsPlace) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink first(testing::node_options(coordinator, keys, 0));
  first.join();
  testing::RawCaller(coordinator, keys.file(0)).post(path::kDeactivate, encode(NodeId{first.id()}));
  const testing::TemporaryFolder machine;  // a clone of the first one
  auto options = testing::node_options(coordinator, keys, 0);
  options.key_file = machine.path() / "clone.pem";
  options.folder = machine.path() / "memory";
  fs::copy_file(keys.file(0), options.key_file);
  NodeLink second(options);
  second.join();
  EXPECT_NE(testing::refusal([&] { first.poll(); }).find("another process has joined"), std::string::npos);
  coordinator.send(second.id(), Content(), {});
  testing::next_instruction(second);
}

TEST(Link, AKilledNodeIsReplacedAtOnceAndItsMessageIsLost) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  const auto sent = [&] {
    NodeLink first(testing::node_options(coordinator, keys, 0));
    first.join();
    const auto id = coordinator.send(first.id(), Content(), {});
    testing::next_instruction(first);
    return id;
  }();  // ends without signing off, as with kill -9
  NodeLink second(testing::node_options(coordinator, keys, 0));
  second.join();
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kLost);
  EXPECT_EQ(arrival->message_id, sent);
  coordinator.send(second.id(), Content(), {});
  testing::next_instruction(second);
}

TEST(Link, ASecondReplyIsRefused) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  Content reply;
  reply.add("metrics", Metrics{{"loss", 1.0}});
  link.reply(instruction, reply);
  EXPECT_NE(testing::refusal([&] { link.reply(instruction, reply); }).find("takes no reply"), std::string::npos);
  EXPECT_EQ(coordinator.wait(testing::patience())->kind, Kind::kReply);
  EXPECT_FALSE(coordinator.wait(testing::in(0.2)));
}

TEST(Link, AReplyMayTakeLongerThanTheLongestDeadline) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {});
  auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  instruction.metadata.created_at -= 1e6;  // as if it had been sent so many seconds ago
  Content reply;
  reply.add("metrics", Metrics{{"loss", 1.0}});
  link.reply(instruction, reply);
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kReply) << arrival->reason;
}

TEST(Link, AnExpiredMessageIsReportedAndItsReplyRefused) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {.ttl_s = 2});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Kind::kExpired);
  EXPECT_NE(testing::refusal([&] { link.reply(instruction, Content()); }), "no error");
}

TEST(Link, ANodeLearnsThatARunIsFinished) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  coordinator.end_run();
  EXPECT_THROW(link.receive(instruction, {}), RunOver);
  EXPECT_FALSE(link.poll());
}

TEST(Link, NodesContinueWithARestartedCoordinator) {
  const testing::Keys keys(1);
  auto options = testing::options_for(keys);
  auto coordinator = std::make_unique<Coordinator>(options);
  options.port = coordinator->port();
  const uint64_t run = coordinator->run_id();
  NodeLink link(testing::node_options(*coordinator, keys, 0));
  link.join();
  const uint64_t id = link.id();
  coordinator.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    coordinator = std::make_unique<Coordinator>(options);
  });
  EXPECT_FALSE(link.poll()) << "waits for the server, and finds nothing";
  later.join();
  EXPECT_EQ(coordinator->run_id(), run);
  EXPECT_TRUE(testing::is_online(*coordinator, id));
  coordinator->send(id, Content(), {});
  testing::next_instruction(link);
}

TEST(Link, ANodeJoinsAgainAServerWhoseFolderWasMadeAnew) {
  const testing::Keys keys(1);
  auto options = testing::options_for(keys);
  auto coordinator = std::make_unique<Coordinator>(options);
  options.port = coordinator->port();
  NodeLink link(testing::node_options(*coordinator, keys, 0));
  link.join();
  const uint64_t id = link.id();
  coordinator->send(id, Content(), {});
  const auto instruction = testing::next_instruction(link);
  coordinator.reset();
  remove_path(options.folder);
  coordinator = std::make_unique<Coordinator>(options);
  EXPECT_THROW(link.reply(instruction, Content()), RunOver) << "nobody waits for it";
  EXPECT_FALSE(link.poll());
  EXPECT_NE(link.id(), id);
  EXPECT_TRUE(testing::is_online(*coordinator, link.id()));
  coordinator->send(link.id(), Content(), {});
  testing::next_instruction(link);
}

TEST(Link, ANodeWhoseKeyIsNotOnTheListAnyMoreEnds) {
  const testing::Keys keys(2);
  auto options = testing::options_for(keys);
  auto coordinator = std::make_unique<Coordinator>(options);
  options.port = coordinator->port();
  NodeLink link(testing::node_options(*coordinator, keys, 0));
  link.join();
  coordinator.reset();
  options.allowed.erase(options.allowed.begin());
  coordinator = std::make_unique<Coordinator>(options);
  EXPECT_NE(testing::refusal([&] { link.poll(); }).find("does not accept this node"), std::string::npos);
}

TEST(Link, ANodeThatSignsOffIsOfflineAtOnceAndMayComeBack) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  auto link = std::make_unique<NodeLink>(testing::node_options(coordinator, keys, 0));
  link->join();
  const uint64_t id = link->id();
  coordinator.send(id, Content(), {});
  testing::next_instruction(*link);
  EXPECT_TRUE(testing::is_online(coordinator, id));
  link->sign_off();
  EXPECT_FALSE(testing::is_online(coordinator, id));
  EXPECT_EQ(coordinator.wait(testing::patience()).value().kind, Kind::kLost);
  link.reset();  // its process has the key for itself
  NodeLink next(testing::node_options(coordinator, keys, 0));
  next.join();
  EXPECT_EQ(next.id(), id);
}

TEST(Link, ATaskThatANodeHasGivenUpIsLostWhenItAsksForWork) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  EXPECT_FALSE(coordinator.wait(in(0.2)));
  link.receive(instruction, {});
  EXPECT_FALSE(coordinator.wait(in(0.2))) << "it works";
  EXPECT_FALSE(link.poll());
  const auto lost = coordinator.wait(testing::patience()).value();
  EXPECT_EQ(lost.kind, Kind::kLost);
  EXPECT_EQ(lost.reason, "the node asks for work without a reply");
}

TEST(Link, WithoutTlsARefusalCountsWhenItIsRepeated) {
  const testing::Keys keys(1);
  std::map<std::string, int> calls;
  std::mutex mutex;
  const HttpServer server({.host = "127.0.0.1", .threads = 4}, [&](const HttpRequest& request) -> HttpReply {
    request.body(1 << 20);
    const std::lock_guard lock(mutex);
    const int call = ++calls[request.path];
    if (call == 1) throw Refusal{.status = 400, .code = 1003, .detail = "a flipped bit"};
    if (call == 2) throw Refusal{.status = 401, .detail = "the signature is not valid"};
    if (request.path == path::kRegister || request.path == path::kActivate) return {.body = encode(NodeId{7})};
    return {};
  });
  NodeLink link({.server = {.port = server.port(), .insecure = true},
                 .key_file = keys.file(0),
                 .folder = keys.folder_of(0),
                 .heartbeat_s = 10});
  link.join();
  EXPECT_EQ(link.id(), 7u);
  EXPECT_FALSE(link.poll());
  EXPECT_EQ(calls[std::string(path::kPullMessages)], 3);
}

/// Answers a node's calls. The first `refusals` of the calls of `path` are refused because of their time stamp.
Answering wrong_clock(std::string_view path, int refusals) {
  return [path, left = std::make_shared<std::atomic<int>>(refusals)](const HttpRequest& request) -> HttpReply {
    request.body(1 << 20);
    if (request.path == path && (*left)-- > 0)
      throw Refusal{.status = 401, .detail = "a time stamp of 2026-01-01, 405 s old, allowed: -5 to 305"};
    if (request.path == path::kRegister || request.path == path::kActivate) return {.body = encode(NodeId{7})};
    return {};
  };
}

TEST(Link, AServersClockThatIsSetRightAgainIsWaitedForAfterJoining) {
  const testing::Keys keys(1);
  const HttpServer server({.host = "127.0.0.1", .threads = 4}, wrong_clock(path::kPullMessages, 3));
  NodeLink link({.server = {.port = server.port(), .insecure = true},
                 .key_file = keys.file(0),
                 .folder = keys.folder_of(0),
                 .heartbeat_s = 10});
  link.join();
  EXPECT_FALSE(link.poll()) << "there is no instruction, after three refusals";
}

TEST(Link, ANodeWhoseClockIsWrongDoesNotJoin) {
  const testing::Keys keys(1);
  const HttpServer server({.host = "127.0.0.1", .threads = 4}, wrong_clock(path::kRegister, 3));
  NodeLink link({.server = {.port = server.port(), .insecure = true},
                 .key_file = keys.file(0),
                 .folder = keys.folder_of(0),
                 .heartbeat_s = 10});
  EXPECT_NE(testing::refusal([&] { link.join(); }).find("the clocks differ by more than 5 s"), std::string::npos);
}

/// Returns what a node is told when the server's buffers fail, and the outcome of the message.
std::pair<std::string, Arrival> outcome_of(const BufferAllocator& failing) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  coordinator.send(link.id(), Content(), {.place = failing});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  const auto arrays = some_arrays();
  auto told = testing::refusal([&] { link.reply(instruction, some_content(arrays)); });
  return {std::move(told), coordinator.wait(testing::patience()).value()};
}

TEST(Link, FailuresOfTheServersMachineAreNotBlamedOnTheNode) {
  const auto full = [](const Content&) -> ReceiveBuffers { fail(kIo, "/srv/run/arriving-1: No space left"); };
  const auto defect = [](const Content&) -> ReceiveBuffers {
    throw std::runtime_error("unable to write /srv/run\nframe #33");
  };
  const auto [of_full, first] = outcome_of(full);
  const auto [of_defect, second] = outcome_of(defect);
  for (const auto& told : {of_full, of_defect}) {
    EXPECT_NE(told.find("the server could not store it"), std::string::npos) << told;
    EXPECT_EQ(told.find("/srv"), std::string::npos) << told;
    EXPECT_EQ(told.find("frame"), std::string::npos) << told;
  }
  EXPECT_EQ(first.kind, Kind::kFailed);
  EXPECT_STREQ(first.failure.value().what(), "[io] /srv/run/arriving-1: No space left");
  EXPECT_EQ(second.kind, Kind::kRefused) << "a node that finds a defect does not end the server";
  EXPECT_EQ(second.reason, "[internal] unable to write /srv/run");
}

TEST(Link, StoppingANodeEndsItsWaitForAServer) {
  const testing::Keys keys(1);
  auto coordinator = std::make_unique<Coordinator>(testing::options_for(keys));
  auto options = testing::node_options(*coordinator, keys, 0);
  const auto begin = std::chrono::steady_clock::now();
  options.stop = [&] { return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300); };
  NodeLink link(options);
  coordinator.reset();
  EXPECT_THROW(link.join(), Stopped);
}

TEST(Link, AnOpenCoordinatorRegistersAnyNode) {
  const testing::Keys keys(2);
  auto options = testing::options_for(keys);
  options.allowed.clear();
  options.open = true;
  options.registered = 1;
  Coordinator coordinator(options);
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  ASSERT_EQ(coordinator.nodes().size(), 1u);
  EXPECT_EQ(coordinator.nodes()[0].name, Key::load(keys.file(0)).public_key().fingerprint());
  NodeLink another(testing::node_options(coordinator, keys, 1));
  EXPECT_NE(testing::refusal([&] { another.join(); }), "no error") << "one is all there may be";
  link.leave();
  EXPECT_TRUE(coordinator.nodes().empty()) << "who registered itself unregisters";
}

TEST(Link, APortInUseIsRefusedUntilItsCoordinatorEnds) {
  const testing::Keys keys(1), others(1);
  auto coordinator = std::make_unique<Coordinator>(testing::options_for(keys));
  const int port = coordinator->port();
  auto options = testing::options_for(others);
  options.port = port;
  const auto why = testing::refusal([&] { Coordinator second(options); });
  EXPECT_NE(why.find("in use by another process"), std::string::npos) << why;
  coordinator.reset();
  EXPECT_EQ(Coordinator(options).port(), port) << "free at once when the first one has ended";
}

TEST(Link, ReasonsOfAThousandBytesAreNotCut) {
  const testing::Keys keys(1);
  Coordinator coordinator(testing::options_for(keys));
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  const std::string reason = std::string(1000, 'a') + " the end";
  coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  link.receive(instruction, {});
  link.refuse(instruction, ErrorCode::kRaised, reason);
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->reason, reason);
}

TEST(Link, ACoordinatorEndsDespiteOngoingRequests) {
  const testing::Keys keys(1);
  auto coordinator = std::make_unique<Coordinator>(testing::options_for(keys));
  std::atomic<bool> done = false;
  std::jthread asking([&, port = coordinator->port()] {
    HttpClient client({.port = port, .insecure = true}, 1, 4096);
    while (!done) client.get("/health");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  coordinator.reset();
  done = true;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
}

}  // namespace
}  // namespace evenkeel::flower
