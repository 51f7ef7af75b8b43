// wit-bindgen has this symbol in an object file that says which world the module is made for. Here
// `dqhost component` says it.
void __component_type_object_force_link_handler(void) {}
