import{a as i,b as m}from"./chunk-FAK2RQUH.js";import{J as t}from"./chunk-U4WABPDT.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
