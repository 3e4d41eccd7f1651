/** Sockets of TCP that never wait. */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partc::shell {

/** An open file, closed at the end. */
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

/** An address as the system has it. */
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/** The address of HOST:PORT where HOST is a number (or `*`: any, or `localhost`); none: it is a name. */
std::optional<Address> numeric_address(const std::string& text);
/** All addresses of HOST:PORT; none: nobody knows the name. May take seconds. */
std::vector<Address> look_up(const std::string& text);

/** A look-up in a thread of its own. */
class Lookup {
 public:
  explicit Lookup(const std::string& text);
  /** The addresses, once they are known. */
  std::optional<std::vector<Address>> result() const;

 private:
  struct Shared {
    std::mutex mutex;
    std::optional<std::vector<Address>> found;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/** A socket that waits for connections; a closed one, and `errno`, where the address cannot be had. */
Descriptor listen_on(const Address& address);
/** HOST:PORT that a socket is bound to. */
std::string bound_address(int socket);
/** The next connection; a closed one, and `errno`, where there is none. */
Descriptor accept_from(int listener);
/** A connection that has begun to be made; a closed one where that cannot even begin. */
Descriptor connect_to(const Address& address);
/** 0, or the error with which a connection that had begun came to its end. */
int connection_error(int socket);

}  // namespace partc::shell
